{{/* Names. All begin with the release's, so that two releases live in one namespace. */}}

{{- define "seedbed.name" -}}
{{- .Release.Name -}}
{{- end -}}

{{- define "seedbed.learner" -}}{{ include "seedbed.name" . }}-learner{{- end -}}
{{- define "seedbed.actor" -}}{{ include "seedbed.name" . }}-actor{{- end -}}
{{- define "seedbed.replay" -}}{{ include "seedbed.name" . }}-replay{{- end -}}
{{- define "seedbed.cost" -}}{{ include "seedbed.name" . }}-cost{{- end -}}

{{/* The learners' pods by their stable names, not a Service that balances; a JSON list of
addresses. Call with (dict "root" $ "port" PORT). */}}
{{- define "seedbed.learnerAddresses" -}}
{{- $root := .root -}}
{{- $port := .port -}}
{{- $learner := include "seedbed.learner" $root -}}
{{- $addresses := list -}}
{{- range $rank := until (int $root.Values.learner.replicas) -}}
  {{- $addresses = append $addresses (printf "%s-%d.%s.%s.svc:%d" $learner $rank $learner $root.Release.Namespace $port) -}}
{{- end -}}
{{ $addresses | toJson }}
{{- end -}}

{{/* Where actors connect to, and where learners listen for each other. */}}
{{- define "seedbed.actorsLearners" -}}
{{- include "seedbed.learnerAddresses" (dict "root" . "port" 8470) -}}
{{- end -}}
{{- define "seedbed.peers" -}}
{{- include "seedbed.learnerAddresses" (dict "root" . "port" 8490) -}}
{{- end -}}

{{/* Whether there are several learners: "true" or nothing. */}}
{{- define "seedbed.several" -}}
{{- if gt (int .Values.learner.replicas) 1 }}true{{ end -}}
{{- end -}}

{{/* Where the learner connects to: every shard by its pod's stable name. A JSON list. */}}
{{- define "seedbed.replayAddresses" -}}
{{- $replay := include "seedbed.replay" . -}}
{{- $addresses := list -}}
{{- range $shard := until (int .Values.replay.shards) -}}
  {{- $addresses = append $addresses (printf "%s-%d.%s.%s.svc:8480" $replay $shard $replay $.Release.Namespace) -}}
{{- end -}}
{{ $addresses | toJson }}
{{- end -}}

{{/* What selects the pods of a component. Call with (dict "root" $ "component" NAME). */}}
{{- define "seedbed.selector" -}}
app.kubernetes.io/name: seedbed
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of a pod: nothing that changes with the chart's version, or every bump restarts it. */}}
{{- define "seedbed.podLabels" -}}
{{ include "seedbed.selector" . }}
app.kubernetes.io/part-of: seedbed
{{- with .root.Values.extraLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of an object. */}}
{{- define "seedbed.labels" -}}
{{ include "seedbed.podLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{- define "seedbed.image" -}}
{{ .repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end -}}
