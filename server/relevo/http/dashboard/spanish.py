"""Every text of the pages in Spanish, by its English; what stands in braces is filled in."""

from __future__ import annotations

SPANISH: dict[str, str] = {
    # The frame
    "To the content": "Ir al contenido",
    "Back to the overview": "Volver al resumen",
    "Request {id}": "Petición {id}",
    "Log out": "Salir",
    "Overview": "Resumen",
    "Main": "Principal",
    "Language": "Idioma",
    "Search": "Buscar",
    "Event, key, owner, phone, token or tender": "Evento, clave, dueño, teléfono, token o licitación",
    "This address, or what was sent to it, is not as it should be.": (
        "Esta dirección, o lo que se envió, no es válida."
    ),
    "Guide": "Guía",
    "What to do": "Qué hacer",
    "On this page": "En esta página",
    "The guide is in English.": "La guía está en inglés.",
    # Logging in
    "Log in": "Entrar",
    "Token": "Token",
    "A viewer's or an operator's token; `relevo token make me --role operator` makes one.": (
        "El token de un lector o de un operador; `relevo token make me --role operator` crea uno."
    ),
    "This link was used, is too old, or is not for this machine.": (
        "Este enlace ya se usó, es demasiado viejo o no es para esta máquina."
    ),
    "This form is too old, or the browser keeps no cookies. Try again.": (
        "Este formulario es demasiado viejo, o el navegador no guarda cookies. Inténtelo de nuevo."
    ),
    "This token is unknown, revoked or expired.": "Este token es desconocido, fue revocado o venció.",
    "The dashboard takes a viewer's or an operator's token; this one is of role {role}.": (
        "El panel acepta el token de un lector o de un operador; este es del rol {role}."
    ),
    "The dashboard shows the whole fleet; this token is for project {project} alone.": (
        "El panel muestra la flota entera; este token es solo del proyecto {project}."
    ),
    "This form has too many fields.": "Este formulario tiene demasiados campos.",
    "This form is not of your session.": "Este formulario no es de su sesión.",
    "Open the page again, and send it from there.": "Abra la página otra vez y envíelo desde allí.",
    # The first page, people and the system
    "More in the runbook": "Más en el manual (en inglés)",
    "People": "Personas",
    "System": "Sistema",
    "Reach": "Alcance",
    "Success rate": "Tasa de éxito",
    "{n} of {phones} may get pushes": "{n} de {phones} pueden recibir notificaciones",
    "nothing has ended in the last day": "nada ha terminado en el último día",
    "{n} confirmed, {failed} failed in the last day": "{n} confirmadas y {failed} fallidas en el último día",
    "pushes in the last day": "notificaciones en el último día",
    "others": "otros",
    "Held": "Retenidos",
    "The last hour, by 5 minutes": "La última hora, cada 5 minutos",
    "The last day, by the hour": "El último día, por hora",
    "at most {n} at a time": "como máximo {n} por tramo",
    "Event types": "Tipos de evento",
    "Confirmed": "Confirmadas",
    "Failed": "Fallidas",
    "Last one": "El último",
    "Of the newest {n} events.": "De los {n} eventos más recientes.",
    "Why did this person not get it?": "¿Por qué no le llegó a esta persona?",
    "Choose somebody to see their phones, the latest events, and why each came or not.": (
        "Elija a alguien para ver sus teléfonos, los últimos eventos y por qué le llegó cada uno o no."
    ),
    "Name, or how it begins": "Nombre, o cómo empieza",
    "No phone has an owner yet: the app names one when it registers a phone.": (
        "Ningún teléfono tiene dueño todavía: la aplicación lo nombra cuando registra un teléfono."
    ),
    "Nobody is called that, and nobody comes after.": "Nadie se llama así, ni hay nadie después en la lista.",
    "none of their phones may get pushes": "ninguno de sus teléfonos puede recibir notificaciones",
    "on {n} of them": "en {n} de ellos",
    "Phone of {owner}": "Teléfono de {owner}",
    "The latest events, and why they came or not": "Los últimos eventos, y por qué llegaron o no",
    "Did it come, and why?": "¿Llegó, y por qué?",
    "{n} tries, each: {became}.": "{n} intentos, todos iguales: {became}.",
    "The last of them:": "El último:",
    "no answer was seen": "no se vio respuesta",
    "Search the guide": "Buscar en la guía",
    "Pages before and after": "Páginas anterior y siguiente",
    "The guide tells nothing of this; try fewer words, or others.": (
        "La guía no dice nada de esto; pruebe con menos palabras, o con otras."
    ),
    "Switch it on again on the page of the system.": "Reanúdelo en la página del sistema.",
    "Pushes": "Notificaciones",
    "the last {runs} took at most {time}": "las últimas {runs} tardaron como máximo {time}",
    "Due now": "Por enviar",
    "Cycles": "Ciclos",
    "Projects": "Proyectos",
    "Sources": "Fuentes",
    "Replicas": "Réplicas",
    "Archive": "Archivo",
    "Healthy. Nothing needs you.": "Todo bien. Nada requiere su atención.",
    "Not healthy: ": "No está bien: ",
    "As of": "Datos al",
    "{n} or more": "{n} o más",
    "oldest {time}": "la más antigua, {time}",
    "nothing is due": "no hay nada por enviar",
    "waits for its time": "espera su hora",
    "wait for their time": "esperan su hora",
    "Being sent": "Enviándose",
    "claimed by workers": "reservadas por procesos",
    "Stuck": "Atascadas",
    "in expired claims": "en reservas vencidas",
    "Failed for good": "Fallidas",
    "dead letters": "entregas fallidas",
    "Sent": "Enviadas",
    "Sent, as they stand": "Enviadas, por estado",
    "Deliveries that are sent now, confirmed or not. The charts count each push, also of those that failed then.": (
        "Entregas que ahora están enviadas, confirmadas o no. Los gráficos cuentan cada envío, también los que después "
        "fallaron."
    ),
    "of {n} that are kept here": "de {n} que se guardan aquí",
    "Healthy.": "Todo bien.",
    "delivery failed for good": "entrega falló definitivamente",
    "deliveries failed for good": "entregas fallaron definitivamente",
    "Project": "Proyecto",
    "Lane": "Cola",
    "Due": "Por enviar",
    "Oldest for": "Más antigua",
    "Nothing is due.": "No hay nada por enviar.",
    "What is due": "Lo que hay por enviar",
    "{events} of {type}": "{events} de {type}",
    "Cycle": "Ciclo",
    "Last outcome": "Último resultado",
    "Took": "Tardó",
    "Last runs": "Últimas ejecuciones",
    "Last round": "Última ronda",
    "Next": "Próxima",
    "State": "Estado",
    "No cycle has run yet: start `relevo run`.": "Aún no se ha ejecutado ningún ciclo: inicie `relevo run`.",
    "when switched on": "cuando se reanude",
    "when called": "cuando se llame",
    "since": "desde",
    "until": "hasta",
    "Rate": "Ritmo",
    "Breaker": "Cortacircuitos",
    "Brake": "Freno",
    "Sent in 15 min": "Enviadas en 15 min",
    "Unregistered": "Dadas de baja",
    "No project has sent anything yet.": "Ningún proyecto ha enviado nada todavía.",
    "Source": "Fuente",
    "Last answer": "Última respuesta",
    "Last read": "Última lectura",
    "Last news": "Última novedad",
    "Detail": "Detalle",
    "No source has been asked yet.": "Aún no se ha consultado ninguna fuente.",
    "Worker": "Proceso",
    "Role": "Rol",
    "Version": "Versión",
    "Started": "Inicio",
    "Seen": "Visto",
    "No worker is running: start `relevo run`.": "No hay ningún proceso en marcha: inicie `relevo run`.",
    "Stopped in good order within the last day: {workers}.": "Terminados en orden durante el último día: {workers}.",
    "Month": "Mes",
    "What": "Qué",
    "Rows": "Filas",
    "Size": "Tamaño",
    "Verified": "Verificado",
    "not yet": "aún no",
    "No month has left the hot tables yet.": "Ningún mes ha salido aún de las tablas activas.",
    # Runs, sources, dead letters, archive, audit, compose, actions
    "A month leaves once its last day is {days} days old.": "Un mes sale cuando su último día tiene {days} días.",
    "Action": "Acción",
    "All runs of {cycle}": "Todas las ejecuciones de {cycle}",
    "An id looks like {id}.": "Un id se ve así: {id}.",
    "Audit": "Auditoría",
    "Began": "Empezó",
    "Bring it back": "Restaurarlo",
    "Cancel event {event}?": "¿Cancelar el evento {event}?",
    "Cancel it": "Cancelarlo",
    "Dead letters": "Entregas fallidas",
    "Deliveries that failed for good. Mend the cause, then send them again.": (
        "Entregas que fallaron definitivamente. Corrija la causa y envíelas otra vez."
    ),
    "Each begins with all its attempts; what fails again comes back here.": (
        "Cada una empieza con todos sus intentos disponibles; lo que falle otra vez vuelve aquí."
    ),
    "End what is held of {type} without sending it?": "¿Terminar sin enviar lo retenido de {type}?",
    "End {events}": "Terminar {events}",
    "Ended": "Terminó",
    "Error": "Error",
    "Event": "Evento",
    "Event {event} is cancelled; nothing of it was left to send.": (
        "El evento {event} está cancelado; no quedaba nada de él por enviar."
    ),
    "Event {event} was finished already: nothing of it was withdrawn.": (
        "El evento {event} ya estaba terminado: no se retiró nada de él."
    ),
    "Event {event} had ended before.": "El evento {event} ya había terminado.",
    "Event {event} is cancelled.": "El evento {event} está cancelado.",
    "Everything that the runaway brake holds of it is sent; it judges anew what comes then.": (
        "Se envía todo lo que el freno de emergencia retiene; lo que venga después se evalúa de nuevo."
    ),
    "Everything that was offered could be used.": "Todo lo ofrecido se pudo usar.",
    "Examples": "Ejemplos",
    "For the slot of": "Para el turno de",
    "For whoever finds it at 3 a.m.": "Para quien lo encuentre a las 3 de la mañana",
    "Found": "Encontradas",
    "Go on": "Seguir",
    "How many": "Cuántas",
    "It counted nothing.": "No contó nada.",
    "It is recorded in the audit": "Queda registrado en la auditoría",
    "It runs again in the whole fleet, by its schedule.": "Vuelve a ejecutarse en toda la flota, según su horario.",
    "It runs once here, by the same lock as its schedule, for as long as a tick may take at most.": (
        "Se ejecuta una vez aquí, con el mismo bloqueo que su horario, y dura como máximo lo que un tick."
    ),
    "It stops in the whole fleet until somebody switches it on again; a run under way comes to its end.": (
        "Se detiene en toda la flota hasta que alguien lo reanude; una ejecución en curso se completa."
    ),
    "Its breaker is tried at once; its brake is off and judges anew. What is still wrong stops it again.": (
        "Su cortacircuitos se prueba enseguida; su freno se desactiva y vuelve a evaluar. Si algo sigue mal, se "
        "detiene otra vez."
    ),
    "Its breaker opened because: {why}": "Su cortacircuitos se abrió porque: {why}",
    "Its runs": "Sus ejecuciones",
    "Leave it as it is": "Dejarlo como está",
    "Let {project} send again?": "¿Dejar que {project} envíe otra vez?",
    "Months in the archive": "Meses en el archivo",
    "Months in the database": "Meses en la base de datos",
    "Newest": "Lo más nuevo",
    "Next may start": "La próxima puede empezar",
    "Next try": "Próximo intento",
    "No archive store is set: months stay in the database. Set `ARCHIVE_BUCKET`, or `ARCHIVE_FOLDER`.": (
        "No hay almacén de archivo: los meses quedan en la base de datos. Defina `ARCHIVE_BUCKET` o `ARCHIVE_FOLDER`."
    ),
    "No cycle has run yet.": "Aún no se ha ejecutado ningún ciclo.",
    "No dead letter fits any more.": "Ya no hay entregas fallidas que coincidan.",
    "No month has been made yet.": "Aún no se ha creado ningún mes.",
    "No month has left the database yet.": "Ningún mes ha salido aún de la base de datos.",
    "No run fits.": "Ninguna ejecución coincide.",
    "No source has been asked yet. `SOURCES` names those to be read; `relevo run` asks them.": (
        "Aún no se ha consultado ninguna fuente. `SOURCES` nombra las que se leen; `relevo run` las consulta."
    ),
    "Nobody has done anything yet.": "Nadie ha hecho nada todavía.",
    "Not used": "Sin usar",
    "Nothing fits among those looked at; older ones may.": (
        "Nada coincide entre lo revisado; quizás algo más antiguo."
    ),
    "Nothing fits.": "Nada coincide.",
    "Nothing has failed for good.": "Nada ha fallado definitivamente.",
    "Nothing held {project} up.": "Nada detenía a {project}.",
    "Nothing of it is sent any more. This cannot be taken back.": "Nada más se enviará. Esto no se puede deshacer.",
    "Older": "Más antiguo",
    "One every": "Una cada",
    "One of these is no installation's id.": "Uno de estos no es el id de una instalación.",
    "Outcome": "Resultado",
    "Pause it": "Pausarlo",
    "Pause {cycle}?": "¿Pausar {cycle}?",
    "Quota": "Cuota",
    "Quotas": "Cuotas",
    "Read now": "Leer ahora",
    "Read up to": "Leída hasta",
    "Reason": "Motivo",
    "Release it": "Liberarlo",
    "Requests today": "Peticiones hoy",
    "Rows, about": "Filas, aprox.",
    "Run it": "Ejecutarlo",
    "Run {cycle} now?": "¿Ejecutar {cycle} ahora?",
    "Run {id} of {cycle}": "Ejecución {id} de {cycle}",
    "Runs": "Ejecuciones",
    "Runs are forgotten after a while.": "Las ejecuciones se borran después de un tiempo.",
    "Send again…": "Enviar otra vez…",
    "Send what is held of {type}?": "¿Enviar lo retenido de {type}?",
    "Send {events}": "Enviar {events}",
    "Send {n} again": "Enviar {n} otra vez",
    "Send {n} again?": "¿Enviar {n} otra vez?",
    "Show": "Mostrar",
    "Show all": "Mostrar todo",
    "Since": "Desde",
    "Source {name}": "Fuente {name}",
    "Started by": "Iniciada por",
    "Stays wrong": "Sigue fallando",
    "Switch it on": "Reanudarlo",
    "Switch {cycle} on again?": "¿Reanudar {cycle}?",
    "Table": "Tabla",
    "The newest {n} deliveries that failed for good. Mend the cause, then send them again.": (
        "Las {n} entregas más nuevas que fallaron definitivamente. Corrija la causa y envíelas otra vez."
    ),
    "The next pass of the source looks at what it offered once more.": (
        "La próxima pasada de la fuente mira otra vez lo que ofreció."
    ),
    "The run": "La ejecución",
    "The run after": "La siguiente",
    "The run before": "La anterior",
    "There is no project {project}.": "No hay ningún proyecto {project}.",
    "There is no run {id}.": "No hay ninguna ejecución {id}.",
    "There is no source to read.": "No hay ninguna fuente que leer.",
    "There is nothing at this address.": "No hay nada en esta dirección.",
    "These are too many: {most} at most.": "Son demasiados: {most} como máximo.",
    "This process runs no cycles.": "Este proceso no ejecuta ciclos.",
    "Tried": "Intentado",
    "Try again": "Intentar otra vez",
    "Try all rejects again": "Intentar otra vez todos los rechazos",
    "Try all rejects of {source} again?": "¿Intentar otra vez todos los rechazos de {source}?",
    "Try reject {id} again?": "¿Intentar otra vez el rechazo {id}?",
    "Type": "Tipo",
    "What could not be used": "Lo que no se pudo usar",
    "What it counted": "Lo que contó",
    "What it did": "Lo que hizo",
    "What was wrong with it": "Qué problema tenía",
    "When": "Cuándo",
    "Which event?": "¿Qué evento?",
    "Which rejects?": "¿Qué rechazos?",
    "Which type of events?": "¿Qué tipo de eventos?",
    "Who": "Quién",
    "Why": "Por qué",
    "Why not": "Por qué no",
    "With what": "Con qué",
    "all": "todos",
    "any time": "siempre",
    "by {face}": "por {face}",
    "dead letter": "entrega fallida",
    "dropped here ": "borrado aquí ",
    "given up": "abandonado",
    "with the next pass": "con la próxima pasada",
    "it is still running": "sigue en curso",
    "no month": "ningún mes",
    "nothing": "nada",
    "of the first {n} looked at": "de las primeras {n} revisadas",
    "once it is verified": "cuando esté verificado",
    "push": "notificación",
    "pushes": "notificaciones",
    "reject": "rechazo",
    "rejects": "rechazos",
    "spent": "agotada",
    "the beginning": "el comienzo",
    "the first ": "la primera ",
    "the last 7 days": "los últimos 7 días",
    "the last day": "el último día",
    "the last hour": "la última hora",
    "time": "vez",
    "times": "veces",
    "to be dropped here ": "se borrará aquí ",
    "would be opened, and end unsent: the phone takes no pushes any more": (
        "a abrir, para terminar sin envío: el teléfono ya no recibe notificaciones"
    ),
    "would be opened, and end unsent: their event was cancelled or completed.": (
        "a abrir, para terminar sin envío: su evento fue cancelado o completado."
    ),
    "would be sent again.": "para enviar otra vez.",
    "would not: their deadline has passed.": "no: su plazo ya pasó.",
    "would not: their month is on its way to the archive.": "no: su mes va camino al archivo.",
    "{cycle} has run and failed.": "{cycle} se ejecutó y falló.",
    "{cycle} has run.": "{cycle} se ejecutó.",
    "{cycle} is paused in the whole fleet.": "{cycle} está en pausa en toda la flota.",
    "{cycle} is switched on again.": "{cycle} está activo otra vez.",
    "{cycle} was not paused; nothing was changed.": "{cycle} no estaba en pausa; nada cambió.",
    "{events} of {type} were ended unsent.": "Terminaron sin enviarse {events} de {type}.",
    "{events} of {type} will be sent.": "Se enviarán {events} de {type}.",
    "{name} is too long: {most} characters at most.": "{name} es demasiado largo: {most} caracteres como máximo.",
    "file": "archivo",
    "files": "archivos",
    "{n} of it being sent right now may still go out.": "{n} que se envían en este momento aún pueden salir.",
    "{n} of it not sent yet will never be sent.": "{n} sin enviar ya no se enviarán nunca.",
    "{n} of it sent before stay sent.": "{n} enviadas antes quedan enviadas.",
    "{n} of them given up": "{n} abandonados",
    "{n} past their deadline": "{n} con plazo vencido",
    "{n} will be sent again.": "Se enviarán otra vez: {n}.",
    "A probe of {project} goes out now; once it is taken, the rest follows.": (
        "Ahora sale una prueba de {project}; cuando la acepten, sigue el resto."
    ),
    "when project {project} sends again: its breaker is open": (
        "cuando el proyecto {project} envíe otra vez: su cortacircuitos está abierto"
    ),
    "not known: {owners}": "no se conoce: {owners}",
    "{project} sends at its full rate again.": "{project} envía otra vez a su ritmo completo.",
    "The brake on disabling tokens of {project} is off.": "El freno a desactivar tokens de {project} está desactivado.",
    "Sending had not stopped. What failed while it was on can be sent again as dead letters.": (
        "El envío no se había detenido. Lo que falló mientras tanto se puede enviar otra vez desde las entregas "
        "fallidas."
    ),
    "{cycle} was paused already.": "{cycle} ya estaba en pausa.",
    "Since {since}, because: {why}": "Desde {since}, porque: {why}",
    "{rejects} will be tried again by the next pass.": "La próxima pasada intentará otra vez: {rejects}.",
    "{value} is no number of anything.": "{value} no corresponde a nada.",
    "licitaciones": "licitaciones",
    "journal": "diario de envíos",
    "Send them": "Enviarlos",
    "End them": "Terminarlos",
    "Switch on": "Reanudar",
    "Pause": "Pausar",
    "Run now": "Ejecutar ahora",
    "Release": "Liberar",
    "(silent: for the app alone)": "(silenciosa: solo para la aplicación)",
    "Amount": "Monto",
    "Another test push": "Otra notificación de prueba",
    "Audience": "Audiencia",
    "Body": "Texto",
    "Category": "Categoría",
    "Compose": "Redactar",
    "Currency": "Moneda",
    "Data for the app, as JSON": "Datos para la aplicación, como JSON",
    "Gets it": "La recibe",
    "Installations, one a line, {n} at most": "Instalaciones, una por línea, {n} como máximo",
    "It goes to these phones alone, and its page tells whether each took it, or why not.": (
        "Va solo a estos teléfonos, y su página dice si cada uno la recibió, o por qué no."
    ),
    "It must look like {example}.": "Debe verse así: {example}.",
    "It names no phone.": "No nombra ningún teléfono.",
    "Its timeline": "Su recorrido",
    "Look at it first": "Revisarla primero",
    "Name one by its id.": "Nombre uno por su id.",
    "No phone is named, and the owner has none.": "No se nombra ningún teléfono, y el dueño no tiene ninguno.",
    "Nothing was sent.": "No se envió nada.",
    "On its way to {phones}.": "En camino a {phones}.",
    "Or all phones of an owner": "O todos los teléfonos de un dueño",
    "Phone": "Teléfono",
    "Phones": "Teléfonos",
    "Region": "Región",
    "Rubros, apart by commas": "Rubros, separados por comas",
    "Send it": "Enviarla",
    "Send this test push to {phones}?": "¿Enviar esta notificación de prueba a {phones}?",
    "Sent to {n} of {phones}; the receipts are awaited.": "Enviada a {n} de {phones}; se esperan los recibos.",
    "Show whom it would reach": "Mostrar a quién llegaría",
    "Some of them": "Algunos de ellos",
    "Taken by none of {phones}.": "Ninguno de {phones} la recibió.",
    "Taken by {n} of {phones}.": "Recibida por {n} de {phones}.",
    "Tender type": "Tipo de licitación",
    "Test push": "Notificación de prueba",
    "Text": "Texto",
    "The data must be a JSON object.": "Los datos deben ser un objeto JSON.",
    "This page looks again by itself.": "Esta página se actualiza sola.",
    "Title": "Título",
    "Topics, apart by commas": "Temas, separados por comas",
    "What that means": "Qué significa",
    "What was sent": "Lo que se envió",
    "Whom would it reach?": "¿A quién llegaría?",
    "With owners or installations: which, one a line": "Con dueños o teléfonos: cuáles, uno por línea",
    "With preferences: what it is about": "Con preferencias: de qué se trata",
    "about {phones}, between {least} and {most}": "unos {phones}, entre {least} y {most}",
    "no": "no",
    "phone": "teléfono",
    "phones": "teléfonos",
    "yes": "sí",
    "{value} is no amount.": "{value} no es un monto.",
    "Look again": "Actualizar",
    "Send what failed again…": "Enviar otra vez lo fallido…",
    "Cancel it…": "Cancelarlo…",
    "Send all these dead letters again?": "¿Enviar otra vez todas estas entregas fallidas?",
    "Send them again": "Enviarlas otra vez",
    "Of the first {n}:": "De las primeras {n}:",
    # States
    "waiting": "en espera",
    "held": "retenido",
    "fanning": "repartiéndose",
    "fanned": "repartido",
    "sending": "enviándose",
    "finished": "terminado",
    "sending, sent or finished": "enviándose, enviado o terminado",
    "cancelled": "cancelado",
    "completed": "completado",
    "pending": "pendiente",
    "retryable": "se reintenta",
    "sent": "enviado",
    "ok": "bien",
    "unconfirmed": "sin confirmar",
    "invalid": "inválido",
    "failed": "fallido",
    "expired": "vencido",
    "skipped": "omitido",
    "unknown": "desconocido",
    "running": "en curso",
    "idle": "sin trabajo",
    "partial": "parcial",
    "abandoned": "abandonado",
    "alive": "en marcha",
    "late": "atrasado",
    "stopped": "terminado",
    "lost": "perdido",
    "silent": "sin señales",
    "stopping": "terminando",
    "closed": "cerrado",
    "open": "abierto",
    "probing": "probando",
    "unchanged": "sin cambios",
    "unavailable": "no disponible",
    "rejected": "rechazado",
    "moving": "moviéndose",
    "sealed": "sellado",
    "retired": "retirado",
    "exported": "exportado",
    "verified": "verificado",
    "dropped": "borrado",
    "begun": "empezado",
    "none": "ninguno",
    "on": "activo",
    "off": "inactivo",
    "paused": "en pausa",
    "rests": "en reposo",
    "confirmed": "confirmado",
    "everyone": "todos",
    "installations": "teléfonos",
    "matching": "según preferencias",
    "owners": "dueños",
    "granted": "concedido",
    "denied": "denegado",
    "undetermined": "sin decidir",
    "urgent": "urgente",
    "bulk": "masiva",
    "schedule": "programado",
    "wake-up": "aviso",
    "tick": "tick",
    "manual": "manual",
    "answered": "respondida",
    "held_back": "no se hizo",
    "not_sent": "no enviada",
    "unclear": "respuesta poco clara",
    "throttled": "frenada",
    "unauthorised": "no autorizada",
    "too_many": "demasiadas",
    "mixed_projects": "proyectos mezclados",
    # Nouns
    "delivery": "entrega",
    "deliveries": "entregas",
    "event": "evento",
    "events": "eventos",
    "run": "ejecución",
    "runs": "ejecuciones",
    "worker": "proceso",
    "workers": "procesos",
    # Times
    "never": "nunca",
    "just now": "ahora mismo",
    "in a moment": "en un momento",
    "now": "ahora",
    "{time} ago": "hace {time}",
    "in {time}": "en {time}",
    "{n} days": "{n} días",
    # Events, deliveries, phones, owners, search
    "(event {id}, archived)": "(evento {id}, archivado)",
    "(no title)": "(sin título)",
    "(nobody was told of it)": "(no se avisó a nadie)",
    "After {time}: {became}.": "Tras {time}: {became}.",
    "All is sent; {n} of {total} wait to be confirmed.": "Todo está enviado; {n} de {total} esperan confirmación.",
    "1 dead letter was opened again.": "Se reabrió 1 entrega fallida.",
    "{n} dead letters were opened again.": "Se reabrieron {n} entregas fallidas.",
    "An operator had it sent anew.": "Un operador la hizo enviar de nuevo.",
    "{who} had it sent anew.": "{who} la hizo enviar de nuevo.",
    "An operator had dead letters of project {project} sent anew.": (
        "Un operador reenvió entregas fallidas del proyecto {project}."
    ),
    "An operator released project {project}.": "Un operador liberó el proyecto {project}.",
    "Announces again": "Vuelve a anunciar",
    "Apple's or Google's service took it: the phone shows it as soon as it is on.": (
        "El servicio de Apple o de Google la aceptó: el teléfono la muestra en cuanto esté encendido."
    ),
    "Asks for": "Pide",
    "At most once": "Como máximo una vez",
    "Attempt {n} did not get through.": "El intento {n} no llegó.",
    "Attempts": "Intentos",
    "By status": "Por estado",
    "Code of your own asked for a later time.": "El código propio pidió una hora posterior.",
    "Code of your own raised an error, or did not return.": "El código propio produjo un error o no terminó.",
    "Deliveries": "Entregas",
    "Delivery": "Entrega",
    "Delivery {id}": "Entrega {id}",
    "Enqueued": "Encolado",
    "Enqueued by the app, or by hand.": "Lo encoló la aplicación, o alguien a mano.",
    "Enqueued: the source {source} had something new.": "Encolado: la fuente {source} traía algo nuevo.",
    "Event id or key": "Número o clave del evento",
    "Event {id}": "Evento {id}",
    "Events": "Eventos",
    "Explain": "Explicar",
    "Filter": "Filtrar",
    "For": "Para",
    "History": "Historial",
    "In the sandbox": "En el sandbox",
    "In words": "Explicación",
    "Installation": "Instalación",
    "It came too late: its deadline had passed.": "Llegó tarde: su plazo había vencido.",
    "It did not get through, for a reason that may pass; it is tried again.": (
        "No llegó, por una razón que puede ser pasajera; se vuelve a intentar."
    ),
    "It failed for good, and lies among the dead letters until somebody sends it anew.": (
        "Falló definitivamente; queda entre las entregas fallidas hasta que alguien la reenvíe."
    ),
    "It has not gone out yet.": "Aún no ha salido.",
    "It is done, and reached nobody: none of {total} was confirmed.": (
        "Terminó y no llegó a nadie: de {total} no se confirmó ninguna."
    ),
    "It is done: {n} of {total} were confirmed.": "Está terminado: {n} de {total} se confirmaron.",
    "It is going out: {n} of {total} are still to be sent.": "Está saliendo: faltan por enviar {n} de {total}.",
    "It waits: {n} of {total} are not sent yet, because {why}.": (
        "Espera: {n} de {total} aún no se han enviado, porque {why}."
    ),
    "It waits: 1 of {total} is not sent yet, because {why}.": (
        "Espera: 1 de {total} aún no se ha enviado, porque {why}."
    ),
    "the runaway brake holds its pushes": "el freno de emergencia retiene sus notificaciones",
    "sending is paused": "los envíos están en pausa",
    "the breaker of project {project} is open": "el cortacircuitos del proyecto {project} está abierto",
    "the push service asked for a rest": "el servicio de notificaciones pidió una pausa",
    "A probe of project {project} failed: its breaker stays open.": (
        "Falló una prueba del proyecto {project}: su cortacircuitos sigue abierto."
    ),
    "It is to be sent.": "Está por enviarse.",
    "It may be sent once at most, and no answer was seen: nobody knows whether it arrived.": (
        "Puede enviarse como máximo una vez y no se vio respuesta: nadie sabe si llegó."
    ),
    "It waits for its time,": "Espera su hora,",
    "Its fan-out failed.": "Su reparto falló.",
    "It waits for its turn in fan-out.": "Espera su turno en el reparto.",
    "It waits until an operator releases the runaway brake.": "Espera a que un operador libere el freno de emergencia.",
    "It waits: fan-out is paused ({reason}).": "Espera: el reparto está en pausa ({reason}).",
    "It waits:": "Espera:",
    "It waits for its receipt, which is asked for": "Espera su recibo, que se pide",
    "Its receipt is being asked for.": "Se está pidiendo su recibo.",
    "Its receipt is due to be asked for.": "Ya corresponde pedir su recibo.",
    "Asking for receipts is paused ({reason}).": "La consulta de recibos está en pausa ({reason}).",
    "Worker {worker} is sending it.": "El proceso {worker} la está enviando.",
    "Now": "Ahora",
    "It was cancelled.": "Fue cancelado.",
    "It was ended; {n} of its pushes had been sent by then.": (
        "Se terminó; para entonces se habían enviado {n} de sus notificaciones."
    ),
    "It was handled elsewhere.": "Se atendió en otra parte.",
    "It was handled on another phone, or elsewhere.": "Se atendió en otro teléfono o en otra parte.",
    "It went out to nobody: no phone was meant, or none may receive pushes.": (
        "No se envió a nadie: ningún teléfono correspondía, o ninguno puede recibir notificaciones."
    ),
    "It will get it.": "Lo recibirá.",
    "Its deadline passed before it could be sent.": "Su plazo venció antes de que pudiera enviarse.",
    "Its deadline passed.": "Su plazo venció.",
    "Its deadline: what is not sent by then is not sent.": (
        "Su plazo: lo que no se haya enviado entonces ya no se envía."
    ),
    "Its preference {preference} matches.": "Su preferencia {preference} coincide.",
    "Its scheduled time came.": "Llegó su hora programada.",
    "Key": "Clave",
    "Last attempt": "Último intento",
    "Made by fan-out: this phone is to get the event.": "Creada por el reparto: este teléfono debe recibir el evento.",
    "Next attempt": "Próximo intento",
    "No answer was seen yet.": "Aún no se ha visto respuesta.",
    "No event fits.": "Ningún evento coincide.",
    "No.": "No.",
    "No: it was meant to, and did not.": "No: debía recibirlo, y no lo recibió.",
    "Nobody knows.": "Nadie lo sabe.",
    "None of this phone's preferences matches: {differs}.": "Ninguna preferencia de este teléfono coincide: {differs}.",
    "None of those that were looked at is in this state.": "Ninguna de las que se miraron está en este estado.",
    "Not yet.": "Todavía no.",
    "Nothing fits. What is searched for must be written out, to the letter.": (
        "Nada coincide. Lo que se busca debe escribirse completo, letra por letra."
    ),
    "Nothing was meant for it yet, or all of it was archived.": "Aún no hubo nada para él, o todo está archivado.",
    "Nothing: it has no preference, and gets only what is for everyone, for it or for its owner.": (
        "Nada: no tiene preferencias y recibe solo lo que es para todos, para él o para su dueño."
    ),
    "One can search for:": "Se puede buscar:",
    "One of its pushes was tried {n} times.": "Una de sus notificaciones se intentó {n} veces.",
    "Opted out of": "Se dio de baja de",
    "Owner": "Dueño",
    "Owners": "Dueños",
    "Permission": "Permiso",
    "Phone {id}": "Teléfono {id}",
    "Phones of project {project} turned out to belong to another one.": (
        "Unos teléfonos del proyecto {project} resultaron ser de otro."
    ),
    "Phones of several projects were in one request; they are sent apart now.": (
        "Había teléfonos de varios proyectos en una petición; ahora se envían por separado."
    ),
    "Platform": "Plataforma",
    "Project {project} met so many unregistered phones that no token was disabled any more.": (
        "El proyecto {project} encontró tantos teléfonos dados de baja que dejó de desactivar tokens."
    ),
    "The push service is not available just now: it answered 503.": (
        "El servicio de notificaciones no está disponible ahora: respondió 503."
    ),
    "The push service failed: what stands before it had no answer from it, 502.": (
        "El servicio de notificaciones falló: lo que está delante no obtuvo respuesta de él, 502."
    ),
    "The push service failed: what stands before it had no answer in time, 504.": (
        "El servicio de notificaciones falló: lo que está delante no obtuvo respuesta a tiempo, 504."
    ),
    "The push service wanted fewer pushes in one request.": (
        "El servicio de notificaciones quería menos notificaciones en una petición."
    ),
    "The push service wanted to be asked for fewer receipts at once.": (
        "El servicio de notificaciones quería que se le pidieran menos recibos a la vez."
    ),
    "The push service did not understand the request.": "El servicio de notificaciones no entendió la petición.",
    "The push service did not allow it.": "El servicio de notificaciones no lo permitió.",
    "Its month went to the archive before it could be sent.": "Su mes pasó al archivo antes de que pudiera enviarse.",
    "No reason was given.": "No se dio ningún motivo.",
    "“{said}”": "«{said}»",
    "It went out to nobody: {why}.": "No se envió a nadie: {why}.",
    "Nobody gets it: {why}.": "No lo recibe nadie: {why}.",
    "unknown owner, no phone belongs to {owners}": "dueño desconocido, ningún teléfono es de {owners}",
    "no phone of {owners} may receive it: {reasons}": "ningún teléfono de {owners} puede recibirlo: {reasons}",
    "no phone that it names is registered": "ningún teléfono de los que nombra está registrado",
    "no phone that it names may receive it: {reasons}": (
        "ningún teléfono de los que nombra puede recibirlo: {reasons}"
    ),
    "no phone is registered yet": "todavía no hay ningún teléfono registrado",
    "no phone may receive it: {reasons}": "ningún teléfono puede recibirlo: {reasons}",
    "no phone's preferences match": "las preferencias de ningún teléfono coinciden",
    "no phone that was meant could receive it then": "ningún teléfono de los previstos podía recibirlo entonces",
    "Pushes may not go to this phone.": "No se pueden enviar notificaciones a este teléfono.",
    "Pushes may not go to this phone: {why}.": "No se pueden enviar notificaciones a este teléfono: {why}.",
    "Registered": "Registrado",
    "Relevo began to look who gets it (fan-out).": "Relevo empezó a ver quién lo recibe (reparto).",
    "Request {id} went out {which}, from worker {worker}.": (
        "La petición {id} salió {which}, desde el proceso {worker}."
    ),
    "Says": "Dice",
    "Scheduled for this time; before it nothing happens.": "Programado para esta hora; antes no pasa nada.",
    "Search: {asked}": "Búsqueda: {asked}",
    "See what the phone got, in the sandbox": "Ver en el sandbox lo que recibió el teléfono",
    "See what the phones got, in the sandbox": "Ver en el sandbox lo que recibieron los teléfonos",
    "Several events fit; which one?": "Coinciden varios eventos; ¿cuál?",
    "Show more": "Mostrar más",
    "Tender": "Licitación",
    "Tenders": "Licitaciones",
    "The app is gone from this phone, or its push token is wrong: nothing is sent to that token.": (
        "La aplicación ya no está en este teléfono, o su token no es válido: no se envía nada a ese token."
    ),
    "The app was removed from this phone, or may show nothing any more.": (
        "La aplicación se quitó de este teléfono, o ya no puede mostrar nada."
    ),
    "The breaker of project {project} closed: sending went on.": (
        "El cortacircuitos del proyecto {project} se cerró: el envío siguió."
    ),
    "The breaker of project {project} opened: sending stopped but for probes.": (
        "El cortacircuitos del proyecto {project} se abrió: solo se enviaron pruebas."
    ),
    "The event had gone out before this phone could receive it.": (
        "El evento ya había salido cuando este teléfono pudo recibirlo."
    ),
    "The event is for everyone.": "El evento es para todos.",
    "The event is for its owner.": "El evento es para su dueño.",
    "The event is for others: it names neither this phone nor its owner.": (
        "El evento es para otros: no nombra a este teléfono ni a su dueño."
    ),
    "The event names this phone.": "El evento nombra a este teléfono.",
    "The event was deleted.": "El evento se borró.",
    "The event was ended before.": "El evento se había terminado antes.",
    "The event was ended, or handled elsewhere, before this push was sent.": (
        "El evento se terminó, o se atendió en otra parte, antes de enviar esta notificación."
    ),
    "The event was ended: {reason}.": "El evento se terminó: {reason}.",
    "The event's deadline had passed.": "El plazo del evento había vencido.",
    "The first push was handed to the push service.": (
        "La primera notificación se entregó al servicio de notificaciones."
    ),
    "The last attempt so far.": "El último intento hasta ahora.",
    "The last of its deliveries ended.": "Terminó la última de sus entregas.",
    "The latest {n} were looked at.": "Se miraron los últimos {n}.",
    "The message cannot be written as JSON.": "El mensaje no se puede escribir como JSON.",
    "The message is too long: 4,096 bytes are the most.": "El mensaje es demasiado largo: 4.096 bytes es lo máximo.",
    "The newest {n} phones are shown.": "Se muestran los {n} teléfonos más nuevos.",
    "The phone got a new push token; it is sent to that one.": "El teléfono recibió un token nuevo; se envía a ese.",
    "The process that sent it died before it saw the answer.": (
        "El proceso que la enviaba murió antes de ver la respuesta."
    ),
    "The push credentials of this project are wrong: renew them at the push service.": (
        "Las credenciales de este proyecto no son válidas: renuévelas en el servicio de notificaciones."
    ),
    "The push service asked project {project} to go slower.": (
        "El servicio de notificaciones pidió al proyecto {project} ir más lento."
    ),
    "The push service asked us to go slower.": "El servicio de notificaciones pidió ir más lento.",
    "The push service could not be reached; nothing was sent.": (
        "No se pudo llegar al servicio de notificaciones; no se envió nada."
    ),
    "The push service did not accept our access token.": (
        "El servicio de notificaciones no aceptó nuestro token de acceso."
    ),
    "The push service did not understand the message.": "El servicio de notificaciones no entendió el mensaje.",
    "The push service had a problem of its own.": "El servicio de notificaciones tuvo un problema propio.",
    "The push service said something that nobody knows yet.": (
        "El servicio de notificaciones dijo algo que nadie conoce aún."
    ),
    "The push service took it and never said what became of it; most likely it arrived.": (
        "El servicio de notificaciones la aceptó y nunca dijo qué fue de ella; lo más probable es que llegara."
    ),
    "The push service took it without a number to ask by.": (
        "El servicio de notificaciones la aceptó sin dar un número con que consultar."
    ),
    "The push service took it, but the answer came late: ticket {ticket}.": (
        "El servicio de notificaciones la aceptó, pero la respuesta llegó tarde: ticket {ticket}."
    ),
    "Your server took it.": "Su servidor la aceptó.",
    "The push service took it: ticket {ticket}.": "El servicio de notificaciones la aceptó: ticket {ticket}.",
    "The push service took it; what became of it there is asked for later.": (
        "El servicio de notificaciones la aceptó; más tarde se pregunta qué fue de ella."
    ),
    "The receipt says that it did not arrive.": "El recibo dice que no llegó.",
    "The receipt says: taken by Apple or Google.": "El recibo dice: la aceptó Apple o Google.",
    "A receipt says that one of its pushes did not arrive.": "Un recibo dice que una de sus notificaciones no llegó.",
    "Receipts say that {n} of its pushes did not arrive; this was the last of them.": (
        "Los recibos dicen que {n} de sus notificaciones no llegaron; este fue el último."
    ),
    "1 that counts, in {requests}": "1 que cuenta, en {requests}",
    "{n} that count, in {requests}": "{n} que cuentan, en {requests}",
    "with this push alone": "solo con esta notificación",
    "It is going out: 1 of {total} is still to be sent.": "Está saliendo: falta por enviar 1 de {total}.",
    "All is sent; 1 of {total} waits to be confirmed.": "Todo está enviado; 1 de {total} espera confirmación.",
    "It is done: 1 of {total} was confirmed.": "Está terminado: 1 de {total} se confirmó.",
    "because it is named": "porque se lo nombra",
    "because it belongs to an owner who is meant": "porque es de un dueño al que se dirige",
    "because its preferences match": "porque sus preferencias coinciden",
    "The request began, and its answer was not seen whole.": "La petición empezó y su respuesta no se vio completa.",
    "No whole answer came in time.": ("No llegó a tiempo una respuesta completa."),
    "The connection was cut before the whole answer came.": (
        "La conexión se cortó antes de que llegara la respuesta completa."
    ),
    "The push service answered something that could not be read.": (
        "El servicio de notificaciones respondió algo que no se pudo leer."
    ),
    "The push service refused the request: it answered {status}.": (
        "El servicio de notificaciones rechazó la petición: respondió {status}."
    ),
    "The push service failed: it answered with an error of its own, 500.": (
        "El servicio de notificaciones falló: respondió con un error propio, 500."
    ),
    "The push service failed: it answered {status}.": "El servicio de notificaciones falló: respondió {status}.",
    "{who} paused the asking of sources.": "{who} puso en pausa la consulta de fuentes.",
    "{who} paused fan-out.": "{who} puso en pausa el reparto.",
    "{who} paused sending.": "{who} puso en pausa los envíos.",
    "{who} paused the asking for receipts.": "{who} puso en pausa la consulta de recibos.",
    "{who} had sources asked again, after {time}.": "{who} reanudó la consulta de fuentes, tras {time}.",
    "{who} had fan-out go on, after {time}.": "{who} reanudó el reparto, tras {time}.",
    "{who} had sending go on, after {time}.": "{who} reanudó los envíos, tras {time}.",
    "{who} had receipts asked for again, after {time}.": "{who} reanudó la consulta de recibos, tras {time}.",
    "Try {n}.": "Intento {n}.",
    "It did not get through.": "No llegó.",
    "It had failed for good, and lay among the dead letters.": (
        "Había fallado definitivamente y estaba entre las entregas fallidas."
    ),
    "The runaway brake held it.": "El freno de emergencia lo retuvo.",
    "The runaway brake held its pushes: they were repeated too often.": (
        "El freno de emergencia retuvo sus notificaciones: se repetían demasiado."
    ),
    "The runaway brake holds it until an operator releases it.": (
        "El freno de emergencia lo retiene hasta que un operador lo libere."
    ),
    "The runaway brake holds it: it was repeated too often.": (
        "El freno de emergencia la retiene: se repitió demasiado."
    ),
    "The runaway brake let it go.": "El freno de emergencia lo liberó.",
    "The runaway brake let project {project} go.": "El freno de emergencia liberó el proyecto {project}.",
    "The runaway brake stopped project {project}.": "El freno de emergencia detuvo el proyecto {project}.",
    "The source {source} found it.": "La fuente {source} la encontró.",
    "The tender {code} was published by {whom}.": "{whom} publicó la licitación {code}.",
    "The webhook leads to a private address.": "El webhook lleva a una dirección privada.",
    "The webhook wants no more.": "El webhook ya no acepta envíos.",
    "There are no deliveries.": "No hay entregas.",
    "There are no events yet: `relevo enqueue` makes one.": "Aún no hay eventos: `relevo enqueue` crea uno.",
    "There is no event with this id or key.": "No hay ningún evento con este número o clave.",
    "There is no such event any more: it was archived or deleted.": "Ese evento ya no está: se archivó o se borró.",
    "There is no such phone any more.": "Ese teléfono ya no está.",
    "There is no webhook of this name.": "No hay ningún webhook con ese nombre.",
    "This machine had no room for another request.": "Esta máquina no tenía capacidad para otra petición.",
    "This owner has no phone.": "Este dueño no tiene teléfonos.",
    "This phone asks for something else now.": "Este teléfono pide ahora otra cosa.",
    "Its device got it already, by an installation that had its push token before.": (
        "Su dispositivo ya lo recibió, por una instalación que antes tenía su token de push."
    ),
    "This phone has no preference, and so asks for nothing.": (
        "Este teléfono no tiene preferencias, así que no pide nada."
    ),
    "This phone opted out of the event's category, {category}.": (
        "Este teléfono se dio de baja de la categoría del evento, {category}."
    ),
    "This phone opted out of the event's category.": "Este teléfono se dio de baja de la categoría del evento.",
    "This phone was forgotten.": "Los datos de este teléfono se borraron.",
    "This phone was forgotten; its history alone is left.": "Los datos de este teléfono se borraron; solo queda "
    "su historial.",
    "This phone's push token does not look like one.": "El token de este teléfono no parece un token.",
    "Ticket": "Ticket",
    "Tokens of project {project} were disabled again where phones are gone.": (
        "Se volvieron a desactivar tokens de teléfonos dados de baja en el proyecto {project}."
    ),
    "Too many pushes went to this phone within a short time.": (
        "Este teléfono recibió demasiadas notificaciones en poco tiempo."
    ),
    "Type and key": "Tipo y clave",
    "What happened": "Qué pasó",
    "What was still open of it was ended unsent.": "Lo que quedaba abierto se terminó sin enviar.",
    "What went wrong": "Qué salió mal",
    "When its turn came, this phone did not want it any more, or could not get it.": (
        "Cuando llegó su turno, este teléfono ya no la quería o no podía recibirla."
    ),
    "Whoever held it before was lost, {times}.": "El proceso que la tenía dejó de responder, {times}.",
    "Whoever tried to send it died, several times: something in it breaks the sender.": (
        "El proceso que intentó enviarla se cayó, varias veces: algo en ella hace fallar el envío."
    ),
    "Why did I (not) get this?": "¿Por qué (no) recibí esto?",
    "Yes, it was sent.": "Sí, se envió.",
    "a push token: ExponentPushToken[…]; it is shown nowhere, and leads to its phone": (
        "un token: ExponentPushToken[…]; no se muestra en ninguna parte y lleva a su teléfono"
    ),
    "a tender's code: 1234-56-LE26": "el código de una licitación: 1234-56-LE26",
    "all {n}": "todas {n}",
    "an event's id: 4711": "el número de un evento: 4711",
    "an event's key, as the app gave it: order-17": "la clave de un evento, como la dio la aplicación: order-17",
    "an installation's id: 5f0c9a52-…": "el número de una instalación: 5f0c9a52-…",
    "an owner, as the app named them: user-7": "un dueño, como lo nombró la aplicación: user-7",
    "another region": "otra región",
    "another rubro": "otro rubro",
    "another type of tender": "otro tipo de licitación",
    "any": "cualquiera",
    "because it is for everyone": "porque es para todos",
    "because it names them": "porque los nombra",
    "because their preferences match": "porque sus preferencias coinciden",
    "because they belong to its owners": "porque son de sus dueños",
    "being sent right now.": "se están enviando ahora.",
    "due, and waiting in line.": "por enviar, a la espera de turno.",
    "everything": "todo",
    "from": "desde",
    "held by the runaway brake until an operator releases it.": (
        "las retiene el freno de emergencia hasta que un operador lo libere."
    ),
    "it cannot receive pushes": "no puede recibir notificaciones",
    "it has no push token": "no tiene token",
    "it is switched off": "está desactivada",
    "it was not even begun": "ni siquiera empezó",
    "it was unregistered, as at a log-out": "se dio de baja, como al cerrar sesión",
    "none of its words is in the text": "ninguna de sus palabras está en el texto",
    "other push": "notificación más",
    "other pushes": "notificaciones más",
    "other topics": "otros temas",
    "phones of several projects were in it": "había en ella teléfonos de varios proyectos",
    "phones whose preferences match": "los teléfonos cuyas preferencias coinciden",
    "region": "región",
    "rubro": "rubro",
    "sending is paused ({reason}).": "el envío está en pausa ({reason}).",
    "the amount is too large or unknown": "el monto es demasiado grande o no se conoce",
    "the amount is too small or unknown": "el monto es demasiado pequeño o no se conoce",
    "no clear answer came, so it is not known what was taken": (
        "no llegó una respuesta clara, así que no se sabe qué se aceptó"
    ),
    "the breaker is open ({reason}); the next push that is due is a probe.": (
        "el cortacircuitos está abierto ({reason}); la próxima notificación pendiente es una prueba."
    ),
    "the breaker is open ({reason}); the next try comes": (
        "el cortacircuitos está abierto ({reason}); la próxima prueba será"
    ),
    "the next attempt comes": "el próximo intento será",
    "the phone does not permit notifications": "el teléfono no permite notificaciones",
    "the phone was not asked yet whether it permits notifications": (
        "aún no se preguntó al teléfono si permite notificaciones"
    ),
    "the push service answered": "el servicio de notificaciones respondió",
    "the push service asked for a rest; it ends": "el servicio de notificaciones pidió una pausa; termina",
    "the push service asked us to go slower": "el servicio de notificaciones pidió ir más lento",
    "the push service did not accept our credentials": "el servicio de notificaciones no aceptó nuestras credenciales",
    "the push service refused one of its messages": "el servicio de notificaciones rechazó uno de sus mensajes",
    "the push service wanted fewer at once": "el servicio de notificaciones quería menos a la vez",
    "there was no connection": "no hubo conexión",
    "topics": "temas",
    "type of tender": "tipo de licitación",
    "up to": "hasta",
    "urgent: it overtakes the others": "urgente: adelanta a las demás",
    "version {n}": "versión {n}",
    "with one of the words": "con una de las palabras",
    "with this push and {others}": "con esta notificación y {others}",
    "with {n} of its pushes": "con {n} de sus notificaciones",
    "yes: rather not at all than twice": "sí: mejor ninguna vez que dos",
    "{deliveries} of project {project}:": "{deliveries} del proyecto {project}:",
    "delivery waits for the push service to say what became of it.": (
        "entrega: falta que el servicio de notificaciones diga qué fue de ella."
    ),
    "deliveries wait for the push service to say what became of them.": (
        "entregas: falta que el servicio de notificaciones diga qué fue de ellas."
    ),
    "Nobody gets it: no phone is meant, or none may receive pushes.": (
        "No lo recibe nadie: ningún teléfono corresponde, o ninguno puede recibir notificaciones."
    ),
    "1 phone gets it, {because}: {made}.": "Lo recibe 1 teléfono, {because}: {made}.",
    "{n} phones get it, {because}: {made}.": "Lo reciben {n} teléfonos, {because}: {made}.",
    "{phones} that it names": "{phones} que nombra",
    "Event {id} was archived.": "El evento {id} se archivó.",
    "There is no event {id}.": "No hay ningún evento {id}.",
    "`relevo archive restore` brings a month back.": "`relevo archive restore` restaura un mes.",
    "There is no delivery {id}, or it was archived.": "No hay ninguna entrega {id}, o está archivada.",
    "There is no phone {id}.": "No hay ningún teléfono {id}.",
    "There is no owner {name}.": "No hay ningún dueño {name}.",
    "There is no page {place}.": "No hay ninguna página {place}.",
    # What was changed since an event went out
    "It was registered only afterwards:": "Se registró recién después:",
    "The event went out": "El evento salió",
    "When the event went out it was meant to get it: a delivery was made.": (
        "Cuando el evento salió debía recibirlo: se creó una entrega."
    ),
    "Nobody registered it, or it was forgotten.": "Nadie lo registró, o sus datos se borraron.",
    "That is so only since": "Es así recién desde el",
    ", after the event had gone out; how it was then is not kept.": (
        ", cuando el evento ya había salido; no se guarda cómo era entonces."
    ),
    "The phone was changed, or registered itself again, since:": (
        "El teléfono cambió después, o se registró de nuevo:"
    ),
    "Its preferences were changed since:": "Sus preferencias cambiaron después:",
    "A preference that was removed since would leave no trace.": (
        "Una preferencia que se quitó después no dejaría huella."
    ),
    "It changed its owner since:": "Cambió de dueño después:",
    "; it is judged as it is today.": "; se evalúa según cómo está hoy.",
    # Who is left out of an audience, or of a test push
    "Left out": "Quedan fuera",
    "Left out, beside those whose preferences do not match": (
        "Quedan fuera, además de aquellos cuyas preferencias no coinciden"
    ),
    "of the newest {n} phones": "de los {n} teléfonos más nuevos",
    "nobody registered it": "nadie lo registró",
    "nobody": "nadie",
    "opted out of the category {category}": "se dieron de baja de la categoría {category}",
    "None of {phones} would get this test push.": "Ninguno de {phones} recibiría esta notificación de prueba.",
    "Send this test push to {n} of {phones}?": "¿Enviar esta notificación de prueba a {n} de {phones}?",
    "On its way to {n} of {phones}.": "En camino a {n} de {phones}.",
    "Send a test push…": "Enviar una notificación de prueba…",
    # An event's requests
    "taken": "aceptada",
    "not taken": "no aceptada",
    "all {n} taken": "las {n} aceptadas",
    "{taken} taken, {refused} not": "{taken} aceptadas, {refused} no",
    "request": "petición",
    "requests": "peticiones",
    "more request": "petición más",
    "more requests": "peticiones más",
    "and {requests}": "y {requests}",
    "and {requests}, or more": "y {requests}, o más",
    "look at later requests": "ver peticiones posteriores",
    # A login link that is not good
    "Run it where the server runs, with the settings it was started with (`.env`, `DATABASE_URL`).": (
        "Ejecútelo donde corre el servidor, con la misma configuración con que se inició (`.env`, `DATABASE_URL`)."
    ),
    "This command makes a token to log in with, good for a day:": (
        "Este comando crea un token para entrar, válido por un día:"
    ),
    "`relevo run` without DATABASE_URL prints a new link whenever it starts.": (
        "`relevo run` sin DATABASE_URL imprime un enlace nuevo cada vez que se inicia."
    ),
}
