{{- define "platform.labels" -}}
app.kubernetes.io/name: seedbed-platform
app.kubernetes.io/part-of: seedbed
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}
