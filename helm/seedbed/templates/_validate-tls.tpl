{{/* Certificates and tokens. */}}
{{- define "seedbed.validateTls" -}}
{{- $shards := int .Values.replay.shards -}}
{{- if and .Values.tls.enabled .Values.cost.enabled (not .Values.auth.enabled) -}}
  {{- fail "tls.enabled and cost.enabled need auth.enabled: certificates are for gRPC, and the cost meter reads the learner's /status with a token" -}}
{{- end -}}
{{- $own := and .Values.tls.enabled (not (include "seedbed.makesCertificates" .)) -}}
{{- if and $own (not (and .Values.tls.learnerSecret .Values.tls.actorSecret)) -}}
  {{- fail "secrets of tls need tls.learnerSecret and tls.actorSecret, each with tls.crt, tls.key and ca.crt: name both, or none for certificates of cert-manager" -}}
{{- end -}}
{{- if and $own $shards (not .Values.tls.replaySecret) -}}
  {{- fail (printf "tls.learnerSecret and replay.shards: %d need tls.replaySecret: a secret with tls.crt (for *.%s.%s.svc), tls.key and ca.crt" $shards (include "seedbed.replay" .) .Release.Namespace) -}}
{{- end -}}
{{- if and .Values.tls.enabled .Values.actor.sidecar (not .Values.auth.enabled) -}}
  {{- fail (printf "actor.sidecar is %v with tls.enabled: actors reach the learner over a socket, which takes no certificate; say auth.enabled: true for a token, or actor.sidecar: 0" .Values.actor.sidecar) -}}
{{- end -}}
{{- end -}}
