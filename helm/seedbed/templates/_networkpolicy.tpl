{{/* Edges that several policies have. */}}
{{- define "seedbed.scrapers" }}
{{- with .Values.networkPolicy.scrapers }}
# Prometheus --> metrics
- from:
    {{- toYaml . | nindent 4 }}
  ports: [{protocol: TCP, port: metrics}]
{{- end }}
{{- end }}
{{/* Resolvers that are no pods have addresses only: 169.254.20.10 is NodeLocal DNSCache, 169.254.169.254
and fd20:ce::254 are Cloud DNS, 34.118.224.0/20 is where GKE puts Services. */}}
{{- define "seedbed.dns" }}
{{- $peers := .Values.networkPolicy.dns }}
{{- if eq (toString $peers) "auto" }}
  {{- $peers = list (dict "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" "kube-system"))) }}
  {{- range list "169.254.20.10/32" "169.254.169.254/32" "fd20:ce::254/128" "10.0.0.0/8" "100.64.0.0/10" "172.16.0.0/12" "192.168.0.0/16" "34.118.224.0/20" "fc00::/7" }}
    {{- if or $.Values.networkPolicy.ipv6 (not (contains ":" .)) }}{{ $peers = append $peers (dict "ipBlock" (dict "cidr" .)) }}{{ end }}
  {{- end }}
{{- end }}
{{- with $peers }}
# --> DNS
- to:
    {{- toYaml . | nindent 4 }}
  ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
{{- end }}
{{- end }}

{{/* Whether the learner writes to a bucket: "true" or nothing. */}}
{{- define "seedbed.bucket" -}}
{{- $directory := dig "learner" "checkpoint" "directory" "" (include "seedbed.experimentValues" . | fromJson) | default "" -}}
{{- $persistence := .Values.learner.persistence -}}
{{- $upload := include "seedbed.setting" (dict "root" . "path" "learner.upload") -}}
{{- if or (eq $persistence.type "gcsfuse") (contains "://" $persistence.checkpoints) (contains "://" $directory) (contains "://" $upload) }}true{{ end -}}
{{- end -}}

{{/* Credentials from the metadata server, which GKE's data planes rewrite to port 988 of the node,
and the bucket's API. A rule without peers matches nodes, too. */}}
{{- define "seedbed.bucketEgress" }}
{{- if and .Values.networkPolicy.bucket (include "seedbed.bucket" .) }}
# learner --> metadata server, bucket
- to: [{ipBlock: {cidr: 169.254.169.254/32}}]
  ports: [{protocol: TCP, port: 80}, {protocol: TCP, port: 8080}]
- ports: [{protocol: TCP, port: 988}]
- to:
    - ipBlock: {cidr: 0.0.0.0/0}
    {{- if .Values.networkPolicy.ipv6 }}
    - ipBlock: {cidr: "::/0"}
    {{- end }}
  ports: [{protocol: TCP, port: 443}]
{{- end }}
{{- end }}

{{/* What a role's pods reach besides. Call with (dict "root" $ "component" ROLE). */}}
{{- define "seedbed.extraEgress" }}
{{- with (include "seedbed.pod" . | fromJson).extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "seedbed.apiServerEgress" }}
- ports:
    {{- range .Values.networkPolicy.apiServer.ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with .Values.networkPolicy.apiServer.cidr }}
  to: [{ipBlock: {cidr: {{ . | quote }}}}]
  {{- end }}
{{- end }}
