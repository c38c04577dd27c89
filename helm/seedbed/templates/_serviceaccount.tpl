{{/* The service account of a role. Call with (dict "root" $ "component" ROLE). */}}
{{- define "seedbed.serviceAccount" }}
{{- $account := (include "seedbed.pod" . | fromJson).serviceAccount }}
{{- if $account.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "seedbed.serviceAccountName" . }}
  labels:
    {{- include "seedbed.labels" . | nindent 4 }}
  {{- with $account.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false # the meter's pods ask for it
{{- end }}
{{- end }}
