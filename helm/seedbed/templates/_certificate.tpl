{{/* A certificate of cert-manager. Call with (dict "root" $ "component" NAME). */}}
{{- define "seedbed.certificate" }}
{{- if include "seedbed.makesCertificates" .root }}
{{- $service := include (printf "seedbed.%s" .component) .root }}
{{- $issuer := .root.Values.tls.issuer }}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $service }}
  labels:
    {{- include "seedbed.labels" (dict "root" .root "component" "tls") | nindent 4 }}
spec:
  secretName: {{ $service }}-tls
  # Renewed files are read at the next handshake; nothing restarts.
  duration: 2160h
  renewBefore: 360h
  privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Always}
  usages: [server auth, client auth]
  dnsNames:
    - {{ $service }}
    - {{ $service }}.{{ .root.Release.Namespace }}.svc
    - "*.{{ $service }}.{{ .root.Release.Namespace }}.svc"
    # The role, by which a peer is judged: docs/security.md.
    - {{ eq .component "replay" | ternary "shard" .component }}.{{ include "seedbed.fullname" .root }}.{{ .root.Release.Namespace }}.seedbed
  issuerRef: {name: {{ $issuer.name | default (printf "%s-authority" (include "seedbed.fullname" .root)) }}, kind: {{ $issuer.name | empty | ternary "Issuer" $issuer.kind }}{{ with and $issuer.name $issuer.group }}, group: {{ . }}{{ end }}}
{{- end }}
{{- end }}
