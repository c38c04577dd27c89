{{/* A learner of several hosts. */}}
{{- define "seedbed.validateHosts" -}}
{{- $experiment := include "seedbed.experimentValues" . | fromJson -}}
{{- $learner := .Values.learner -}}
{{- $hosts := int (include "seedbed.hosts" .) -}}
{{- $given := dig "learner" "hosts" $hosts $experiment | int -}}
{{- if ne $given $hosts -}}
  {{- fail (printf "learner.hosts is %d, and experiment.learner.hosts is %d: leave one of them out" $hosts $given) -}}
{{- end -}}
{{- if gt $hosts 1 -}}
  {{- if $learner.evaluation.enabled -}}
    {{- fail (printf "learner.hosts is %d and learner.evaluation.enabled is true: a container in each host's pod would evaluate the same checkpoints; leave it out, and run seedbed evaluate --follow in a pod of its own" $hosts) -}}
  {{- end -}}
  {{- include "seedbed.validateJobSet" . -}}
{{- end -}}
{{- end -}}

{{/* What a JobSet cannot do. */}}
{{- define "seedbed.validateJobSet" -}}
{{- $learner := .Values.learner -}}
{{- $pod := include "seedbed.pod" (dict "root" . "component" "learner") | fromJson -}}
{{- with $pod.queueName -}}
  {{- fail (printf "learner.hosts is %v and the learner's queue is %s: Kueue and the cost meter would both choose `suspend` of its JobSet; queue the actors alone (actor.pod.queueName), or say learner.hosts: 1" (include "seedbed.hosts" $) .) -}}
{{- end -}}
{{- with $pod.extraContainers -}}
  {{- fail (printf "learner.pod.extraContainers has %q, and a host's pod ends with its last container: say learner.pod.initContainers with restartPolicy: Always" (first .).name) -}}
{{- end -}}
{{- end -}}
