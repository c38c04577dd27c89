{{/* Edges that several policies have. */}}
{{- define "seedbed.scrapers" }}
{{- with .Values.networkPolicy.scrapers }}
# Prometheus --> metrics
- from:
    {{- toYaml . | nindent 4 }}
  ports: [{protocol: TCP, port: metrics}]
{{- end }}
{{- end }}
{{- define "seedbed.dns" }}
# --> DNS
- to:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: kube-system}
  ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
{{- end }}
{{- define "seedbed.apiServerEgress" }}
- to:
    - ipBlock: {cidr: {{ .Values.networkPolicy.apiServer.cidr }}}
  ports:
    {{- range .Values.networkPolicy.apiServer.ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}
