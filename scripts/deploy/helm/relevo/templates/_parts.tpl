{{- define "relevo.labels" -}}
app.kubernetes.io/name: relevo
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "relevo.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}
{{- define "relevo.account" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default .Release.Name }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}
{{- define "relevo.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}
{{- define "relevo.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
{{- define "relevo.settings" -}}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
- name: TMPDIR
  value: /tmp
{{- end }}
{{- define "relevo.mounts" -}}
- name: temporary
  mountPath: /tmp
{{- if .Values.secretsAsFiles }}
- name: secrets
  mountPath: /etc/relevo
  readOnly: true
{{- end }}
{{- end }}
{{- define "relevo.volumes" -}}
- name: temporary
  emptyDir:
    sizeLimit: {{ .Values.temporaryFiles }}
{{- if .Values.secretsAsFiles }}
- name: secrets
  emptyDir:
    medium: Memory
    sizeLimit: 16Mi
{{- end }}
{{- range $place, $secret := .Values.secretsAsFiles }}
- name: secret-{{ $place }}
  secret:
    secretName: {{ $secret }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- define "relevo.copySecrets" -}}
{{- if .Values.secretsAsFiles }}
initContainers:
  - name: copy-secrets
    image: {{ include "relevo.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    command: [sh, -c, 'for file in /secrets/*/*; do install -D -m 600 "$file" "/etc/relevo/${file#/secrets/}"; done']
    securityContext:
      {{- include "relevo.containerSecurity" . | nindent 6 }}
    volumeMounts:
      - name: secrets
        mountPath: /etc/relevo
      {{- range $place, $secret := .Values.secretsAsFiles }}
      - name: secret-{{ $place }}
        mountPath: /secrets/{{ $secret }}
        readOnly: true
      {{- end }}
{{- end }}
{{- end }}
{{- define "relevo.secretsAsEnvironment" -}}
{{- range $place, $secret := .Values.secretsAsEnvironment }}
- secretRef:
    name: {{ $secret }}
{{- end }}
{{- end }}
