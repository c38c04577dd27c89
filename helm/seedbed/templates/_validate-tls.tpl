{{/* Certificates and tokens. */}}
{{- define "seedbed.validateTls" -}}
{{- $shards := int .Values.replay.shards -}}
{{- if and .Values.tls.enabled .Values.cost.enabled (not .Values.auth.enabled) -}}
  {{- fail "tls.enabled and cost.enabled need auth.enabled: certificates are for gRPC, and the cost meter reads the learner's /status with a token" -}}
{{- end -}}
{{- if and .Values.tls.enabled (not .Values.tls.certManager) (not (and .Values.tls.learnerSecret .Values.tls.actorSecret)) -}}
  {{- fail "tls.enabled without tls.certManager needs tls.learnerSecret and tls.actorSecret: secrets with tls.crt, tls.key and ca.crt" -}}
{{- end -}}
{{- if and .Values.tls.enabled (not .Values.tls.certManager) $shards (not .Values.tls.replaySecret) -}}
  {{- fail (printf "tls.enabled without tls.certManager and replay.shards: %d needs tls.replaySecret: a secret with tls.crt (for *.%s.%s.svc), tls.key and ca.crt" $shards (include "seedbed.replay" .) .Release.Namespace) -}}
{{- end -}}
{{- if and .Values.tls.enabled .Values.actor.sidecar (not .Values.auth.enabled) -}}
  {{- fail (printf "actor.sidecar is %v with tls.enabled: actors reach the learner over a socket, which takes no certificate; say auth.enabled: true for a token, or actor.sidecar: 0" .Values.actor.sidecar) -}}
{{- end -}}
{{- end -}}
