/** What the screens say. `{…}` is replaced by the value of this name. */
export interface Texts {
  notifications: string;
  /** The name of the bell, by how many are unread. */
  noneUnread: string;
  oneUnread: string;
  manyUnread: string;
  unread: string;
  markRead: string;
  markUnread: string;
  markAllRead: string;
  archive: string;
  loadMore: string;
  close: string;
  empty: string;
  loading: string;
  loggedOut: string;
  failed: string;
  retry: string;
  notSaved: string;
  saved: string;
  save: string;
  settings: string;
  categories: string;
  mandatory: string;
  topics: string;
  digest: string;
  digestWhen: string;
  digestTime: string;
  digestDay: string;
  now: string;
  hourly: string;
  daily: string;
  weekly: string;
  mixed: string;
  quiet: string;
  quietOn: string;
  quietExplained: string;
  quietEveryDay: string;
  quietFrom: string;
  quietTo: string;
  quietAdd: string;
  quietRemove: string;
  quietZone: string;
}

const EN: Texts = {
  notifications: "Notifications",
  noneUnread: "Notifications, none unread",
  oneUnread: "Notifications, 1 unread",
  manyUnread: "Notifications, {count} unread",
  unread: "Unread",
  markRead: "Mark as read",
  markUnread: "Mark as unread",
  markAllRead: "Mark all as read",
  archive: "Archive",
  loadMore: "Load more",
  close: "Close",
  empty: "No notifications yet.",
  loading: "Loading…",
  loggedOut: "Log in to see your notifications.",
  failed: "Notifications cannot be loaded.",
  retry: "Try again",
  notSaved: "Not saved. The former setting is back.",
  saved: "Saved.",
  save: "Save",
  settings: "Notification settings",
  categories: "What you get",
  mandatory: "Always on.",
  topics: "Topics",
  digest: "How often",
  digestWhen: "Delivery",
  digestTime: "Time",
  digestDay: "Day",
  now: "At once",
  hourly: "Every hour, together",
  daily: "Once a day, together",
  weekly: "Once a week, together",
  mixed: "Differs by topic",
  quiet: "Quiet hours",
  quietOn: "Keep quiet hours",
  quietExplained: "During quiet hours notifications wait or make no sound. Urgent ones may still arrive.",
  quietEveryDay: "Every day",
  quietFrom: "From",
  quietTo: "To",
  quietAdd: "Add hours",
  quietRemove: "Remove",
  quietZone: "Time zone: {zone}",
};

const ES: Texts = {
  notifications: "Notificaciones",
  noneUnread: "Notificaciones, ninguna sin leer",
  oneUnread: "Notificaciones, 1 sin leer",
  manyUnread: "Notificaciones, {count} sin leer",
  unread: "Sin leer",
  markRead: "Marcar como leída",
  markUnread: "Marcar como no leída",
  markAllRead: "Marcar todas como leídas",
  archive: "Archivar",
  loadMore: "Ver más",
  close: "Cerrar",
  empty: "Todavía no hay notificaciones.",
  loading: "Cargando…",
  loggedOut: "Inicia sesión para ver tus notificaciones.",
  failed: "No se pueden cargar las notificaciones.",
  retry: "Reintentar",
  notSaved: "No se guardó. Se restableció el ajuste anterior.",
  saved: "Guardado.",
  save: "Guardar",
  settings: "Ajustes de notificaciones",
  categories: "Qué recibes",
  mandatory: "Siempre activa.",
  topics: "Temas",
  digest: "Con qué frecuencia",
  digestWhen: "Entrega",
  digestTime: "Hora",
  digestDay: "Día",
  now: "De inmediato",
  hourly: "Cada hora, en un resumen",
  daily: "Una vez al día, en un resumen",
  weekly: "Una vez por semana, en un resumen",
  mixed: "Distinta según el tema",
  quiet: "Horas de silencio",
  quietOn: "Respetar horas de silencio",
  quietExplained: "En las horas de silencio las notificaciones esperan o no suenan. Las urgentes pueden llegar igual.",
  quietEveryDay: "Todos los días",
  quietFrom: "Desde",
  quietTo: "Hasta",
  quietAdd: "Agregar horas",
  quietRemove: "Quitar",
  quietZone: "Zona horaria: {zone}",
};

/** The texts of a locale, English unless it is Spanish, with those of the app in place of ours. */
export function textsFor(locale: string, own: Partial<Texts> = {}): Texts {
  return { ...(/^es\b/i.test(locale) ? ES : EN), ...own };
}

/** Put values into a text. */
export function fill(text: string, values: Record<string, string | number>): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}
