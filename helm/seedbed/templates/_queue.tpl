{{/* Kueue: labels of a workload, read by its webhooks. Call with (dict "root" $ "component" ROLE). */}}
{{- define "seedbed.queueLabels" -}}
{{- $pod := include "seedbed.pod" . | fromJson -}}
{{- with $pod.queueName }}
kueue.x-k8s.io/queue-name: {{ . }}
{{- end }}
{{- with $pod.queuePriorityClass }}
kueue.x-k8s.io/priority-class: {{ . }}
{{- end }}
{{- end -}}

{{/* "true" where Kueue admits the learners or the shards; nothing else. */}}
{{- define "seedbed.queuedSets" -}}
{{- if or .Values.pod.queueName .Values.learner.pod.queueName .Values.replay.pod.queueName }}true{{ end -}}
{{- end -}}

{{/* What Kueue's webhook refuses of a StatefulSet that is there, with the way out. */}}
{{- define "seedbed.validateQueue" -}}
{{- range $component, $wanted := dict "learner" .Values.learner.replicas "replay" .Values.replay.shards -}}
  {{- $name := printf "%s-%s" (include "seedbed.fullname" $) $component -}}
  {{- $live := lookup "apps/v1" "StatefulSet" $.Release.Namespace $name -}}
  {{- $old := dig "metadata" "labels" dict $live -}}
  {{- $new := include "seedbed.queueLabels" (dict "root" $ "component" $component) | fromYaml -}}
  {{- $kueue := or ($.Capabilities.APIVersions.Has "kueue.x-k8s.io/v1beta1") ($.Capabilities.APIVersions.Has "kueue.x-k8s.io/v1beta2") -}}
  {{- if and $kueue $live $wanted -}}
    {{- range $key := list "kueue.x-k8s.io/queue-name" "kueue.x-k8s.io/priority-class" -}}
      {{- if ne (get $old $key) (get $new $key) -}}
        {{- fail (printf "%s has the label %s: %q, and %q is wanted, which Kueue refuses of a StatefulSet: kubectl -n %s delete statefulset %s (its volumes stay), and upgrade again" $name $key (get $old $key) (get $new $key) $.Release.Namespace $name) -}}
      {{- end -}}
    {{- end -}}
    {{- $number := int (include "seedbed.scale" (dict "root" $ "component" $component "kind" "StatefulSet" "wanted" $wanted) | fromJson).replicas -}}
    {{- $there := int $live.spec.replicas -}}
    {{- if and (get $old "kueue.x-k8s.io/queue-name") $there $number (ne $there $number) -}}
      {{- fail (printf "%s has %d pods and %d are wanted: Kueue lets a StatefulSet go to 0 and from 0 only. Upgrade with paused: true and the new number, then with paused: false" $name $there $number) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
