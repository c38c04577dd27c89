{{/* REGISTRY/REPOSITORY:TAG, or REGISTRY/REPOSITORY@DIGEST. */}}
{{- define "set.image" -}}
{{- with .Values.image -}}
{{- with .registry }}{{ . }}/{{ end -}}
{{- .repository -}}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Account of the controller: its own, or the one that the chart seedbed-platform makes. */}}
{{- define "set.account" -}}
{{ .Values.rbac.create | ternary (include "set.name" .) "seedbed-set" }}
{{- end -}}
