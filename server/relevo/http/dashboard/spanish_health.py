"""What is told of health, and of what an event waits for, in Spanish, by its English."""

from __future__ import annotations

HEALTH: dict[str, str] = {
    "start `relevo run`, or let cron call `relevo tick`": "inicie `relevo run`, o haga que cron llame a `relevo tick`",
    "{problem}": "{problem}",
    "{n}": "{n}",
    "{n} days": "{n} días",
    "{n} or more": "{n} o más",
    "{n} {what}": "{n} {what}",
    "{month} is not archived: {why}; archive-export tries again in its next slot, "
    "`relevo run-cycle archive-export` at once": (
        "{month} no está archivado: {why}; archive-export lo intenta de nuevo en su próximo turno, "
        "`relevo run-cycle archive-export` de inmediato"
    ),
    "RELEVO_INSTANCE is {here} here, and {home} for worker {worker}, which is at work; nothing is sent from here until "
    "it is set as there": (
        "RELEVO_INSTANCE es {here} aquí, y {home} para el proceso {worker}, que está trabajando; desde aquí no se "
        "envía nada hasta que sea igual que allí"
    ),
    "unset": "sin definir",
    "no store is set": "no hay almacén definido",
    "set RELEVO_INSTANCE where it runs as it was, or run `relevo adopt` there if it belongs there": (
        "donde corre, defina RELEVO_INSTANCE como antes, o ejecute allí `relevo adopt` si la base es de allí"
    ),
    "set RELEVO_INSTANCE where it runs as worker {worker} has it": (
        "donde corre, defina RELEVO_INSTANCE igual que el proceso {worker}"
    ),
    "worker {worker} rests and sends nothing, for this database looks like a copy to it: {why}; {advice}, then restart "
    "it": (
        "el proceso {worker} está en reposo y no envía nada, porque esta base de datos le parece una copia: "
        "{why}; {advice}, "
        "y reinícielo"
    ),
    "worker {worker} has not been seen for {time}; if it hangs, end its process: what it held is taken back": (
        "el proceso {worker} no da señales desde hace {time}; si está colgado, termínelo: lo que tenía se recupera"
    ),
    "worker {worker} has not been seen for {time}, and what it held was taken back; it was killed, or does not reach "
    "the database: look at its log": (
        "el proceso {worker} no da señales desde hace {time}, y lo que tenía se recuperó; lo detuvieron a la "
        "fuerza, o no llega a la "
        "base de datos: revise su registro"
    ),
    " (project {project})": " (proyecto {project})",
    "worker {worker}: {what}{where} has hung since {since} (calls given up: {calls}); look into its code, and restart "
    "the worker": (
        "proceso {worker}: {what}{where} está colgado desde el {since} (llamadas abandonadas: {calls}); revise su "
        "código y reinicie el proceso"
    ),
    "worker {worker}: {problem}": "proceso {worker}: {problem}",
    "no worker is running; {advice}": "no hay ningún proceso en marcha; {advice}",
    "no reaper has ever run; {advice}": "nunca se ha ejecutado un reaper; {advice}",
    "{cycle} has failed{times}: {why}; `relevo runs --cycle {name}` tells more": (
        "{cycle} falló{times}: {why}; `relevo runs --cycle {name}` dice más"
    ),
    " {n} times in a row": " {n} veces seguidas",
    "no reason was given": "no se dio ninguna razón",
    "worker {worker} is alive and should run it: look at its log": (
        "el proceso {worker} está en marcha y debería ejecutarlo: revise su registro"
    ),
    "{cycle} has made no round for {time} (usual: within {usual}); {advice}": (
        "{cycle} no ha completado una ronda desde hace {time} (lo habitual: en {usual}); {advice}"
    ),
    "{cycle} missed its slot of {slot}; `relevo run-cycle {cycle}` runs it now": (
        "{cycle} perdió su turno del {slot}; `relevo run-cycle {cycle}` lo ejecuta ahora"
    ),
    "{news} dropped unread for subscription {name}{paused}; see that they are read, or raise NEWS_BACKLOG_LIMIT": (
        "{news} sin leer de la suscripción {name}{paused}; asegúrese de que se lean, o suba NEWS_BACKLOG_LIMIT"
    ),
    "news was": "novedad se descartó",
    "news were": "novedades se descartaron",
    ", which is paused": ", que está en pausa",
    "the webhook {webhook} of subscription {name} is registered so that it may get nothing; "
    "`relevo news subscribe {quoted}` with another --webhook, or register it anew": (
        "el webhook {webhook} de la suscripción {name} está registrado de modo que no puede recibir nada; "
        "`relevo news subscribe {quoted}` con otro --webhook, o regístrelo de nuevo"
    ),
    "news for subscription {name} cannot be sent to the webhook {webhook}: {why}; "
    "then `relevo redrive --project {project}` sends again what failed by it": (
        "las novedades de la suscripción {name} no se pueden enviar al webhook {webhook}: {why}; "
        "después, `relevo redrive --project {project}` reenvía lo que falló por eso"
    ),
    "your server behind the webhook {webhook} takes no news of subscription {name}{why}; {news} on their way, "
    "the oldest for {time}, and more wait behind them; no push is held up by it: look at your server": (
        "su servidor detrás del webhook {webhook} no acepta las novedades de la suscripción {name}{why}; {news} en "
        "camino, la más antigua desde hace {time}, y otras esperan detrás; ninguna notificación se retrasa por eso: "
        "revise su servidor"
    ),
    "news is": "novedad está",
    "news are": "novedades están",
    "delivery is due": "entrega espera su turno",
    "deliveries are due": "entregas esperan su turno",
    "event waits": "evento espera",
    "events wait": "eventos esperan",
    "receipts wait to be asked for": "hay recibos por pedir",
    "nobody takes back what lost workers held": "nadie recupera lo que tenían los procesos perdidos",
    "nothing of it is done": "no se hace nada de eso",
    "{cycle} has been paused for {time} ({reason}), and {what}; `relevo resume {cycle}` switches it on": (
        "{cycle} está en pausa desde hace {time} ({reason}), y {what}; `relevo resume {cycle}` lo reanuda"
    ),
    "an expired claim has been waiting for a reaper for {time}; `relevo run-cycle reaper` takes it back": (
        "una reserva vencida espera a un reaper desde hace {time}; `relevo run-cycle reaper` la recupera"
    ),
    "the {lane} lane of project {project}": "la cola {lane} del proyecto {project}",
    "the step {step} of {cycle}": "el paso {step} de {cycle}",
    "expired claim {name}": "la reserva vencida {name}",
    "the answer of delivery {name}": "la respuesta de la entrega {name}",
    "the receipts of project {name}": "los recibos del proyecto {name}",
    "news for subscription {name}": "las novedades de la suscripción {name}",
    "left alone after an error while the rest goes on: {what} ({why}; {n} times since {since}); "
    "mend what it names, it is tried again at {at}": (
        "se dejó aparte por un error, mientras lo demás sigue: {what} ({why}; {n} veces desde el {since}); "
        "corrija lo que nombra, se intenta de nuevo el {at}"
    ),
    "`relevo runs --cycle dispatch` tells what dispatch does": "`relevo runs --cycle dispatch` dice qué hace dispatch",
    "the push service asked for a rest until {at}, then they are sent": (
        "el servicio de notificaciones pidió una pausa hasta el {at}, después se envían"
    ),
    "{deliveries} due, the oldest for {time}; {advice}": "{deliveries}, la más antigua desde hace {time}; {advice}",
    "{lane} delivery of project {project} is": "entrega {lane} del proyecto {project} espera su turno",
    "{lane} deliveries of project {project} are": "entregas {lane} del proyecto {project} esperan su turno",
    "source {source}: {problem}": "fuente {source}: {problem}",
    "source {source}: {rejects} tried {n} times and given up; `relevo rejects --source {source}` shows what and why, "
    "with --retry it is tried again": (
        "fuente {source}: {rejects} tras {n} intentos; `relevo rejects --source {source}` muestra qué y por qué, "
        "con --retry se intenta de nuevo"
    ),
    "reject was": "rechazo se abandonó",
    "rejects were": "rechazos se abandonaron",
    "for {time}": "desde hace {time}",
    "yet": "todavía",
    "source {source} has not been read {since}: {why}; `relevo runs --cycle ingest` tells more": (
        "la fuente {source} no se ha leído {since}: {why}; `relevo runs --cycle ingest` dice más"
    ),
    "source {source} has had nothing new for {time}, longer than usual; look whether what it reads is still being "
    "published": (
        "la fuente {source} no trae nada nuevo desde hace {time}, más de lo habitual; compruebe si lo que lee "
        "todavía se "
        "publica"
    ),
    "the next at {at}": "la próxima el {at}",
    "one is on its way": "una va en camino",
    "the next push that is due is one": "el próximo envío será una",
    "project {project} has sent nothing but probes since {since}, {probe}: {why}; {mend}; "
    "then {release} probes at once": (
        "el proyecto {project} solo ha enviado pruebas desde el {since}, {probe}: {why}; {mend}; después {release} "
        "prueba de inmediato"
    ),
    "see that the receiver answers, and check its url and secret in WEBHOOKS_FILE": (
        "compruebe que el receptor responde, y su url y secreto en WEBHOOKS_FILE"
    ),
    "set EXPO_ACCESS_TOKEN, or this project's token in EXPO_ACCESS_TOKENS_FILE, to one that Expo takes": (
        "ponga en EXPO_ACCESS_TOKEN, o para este proyecto en EXPO_ACCESS_TOKENS_FILE, un token que Expo acepte"
    ),
    "renew the app's FCM or APNs key in its Expo project": (
        "renueve la clave de FCM o APNs de la app en su proyecto de Expo"
    ),
    "check this machine's way out (DNS, firewall, HTTPS_PROXY) and EXPO_BASE_URL": (
        "revise la salida de esta máquina (DNS, cortafuegos, HTTPS_PROXY) y EXPO_BASE_URL"
    ),
    "see Expo's status page: there is nothing to set here": (
        "consulte la página de estado de Expo: aquí no hay nada que ajustar"
    ),
    "the last {n} requests of project {project} to its push service failed; they are tried again, and after "
    "{most} in a row it sends nothing but probes; `relevo deliveries --state retryable` tells why": (
        "las últimas {n} peticiones del proyecto {project} a su servicio de notificaciones fallaron; se "
        "intentan de nuevo, y "
        "tras {most} seguidas solo envía pruebas; `relevo deliveries --state retryable` dice por qué"
    ),
    "project {project} met so many unregistered tokens that none has been disabled since {since}; check its push "
    "credentials, then {release}": (
        "el proyecto {project} encontró tantos tokens dados de baja que no se desactiva ninguno desde el {since}; "
        "revise sus credenciales de notificaciones, y después {release}"
    ),
    "{events} held as a runaway: {reason}; `{remedy}` sends {them}, and with --drop ends {them}": (
        "{events} por el freno de emergencia: {reason}; `{remedy}` {them} envía, y con --drop {them} termina"
    ),
    "event of {type} from {origin} is": "evento {type} de {origin} está retenido",
    "events of {type} from {origin} are": "eventos {type} de {origin} están retenidos",
    "it": "lo",
    "them": "los",
    "scheduled for {at}": "programado para el {at}",
    "fanout is paused ({reason}); `relevo resume fanout` switches it on": (
        "fanout está en pausa ({reason}); `relevo resume fanout` lo reanuda"
    ),
    "it waits for fan-out": "espera su reparto",
    "the fan-out of {events} fails, of event {id} ({type}) {times}: {error}; it is tried again at {at}, and "
    "`relevo cancel {id}` ends it": (
        "falla el reparto de {events}, el del evento {id} ({type}) {times}: {error}; se intenta de nuevo el {at}, y "
        "`relevo cancel {id}` lo termina"
    ),
    "its fan-out failed {times}: {error}; it is tried again at {at}": (
        "su reparto falló {times}: {error}; se intenta de nuevo el {at}"
    ),
    "event": "evento",
    "events": "eventos",
    "once": "una vez",
    "{n} times": "{n} veces",
    "{n} {lane} of {project}: {why}": "{n} {lane} de {project}: {why}",
    "held by the runaway brake; `{remedy}` sends what it holds of this type": (
        "retenido por el freno de emergencia; `{remedy}` envía lo que retiene de este tipo"
    ),
    "dispatch is paused ({reason}); `relevo resume dispatch` switches it on": (
        "dispatch está en pausa ({reason}); `relevo resume dispatch` lo reanuda"
    ),
    "the breaker is open ({reason}), the next push is a probe": (
        "el cortacircuitos está abierto ({reason}), el próximo envío es una prueba"
    ),
    "the breaker is open ({reason}), the next probe comes at {at}": (
        "el cortacircuitos está abierto ({reason}), la próxima prueba sale el {at}"
    ),
    "the push service asked for a rest until {at}": "el servicio de notificaciones pidió una pausa hasta el {at}",
    "tried again from {at} on": "se intenta de nuevo a partir del {at}",
    "being sent": "se está enviando",
    "due, and sent as the project's rate allows": "por enviar ya, según lo permita el ritmo del proyecto",
    "an unknown time": "momento desconocido",
}
