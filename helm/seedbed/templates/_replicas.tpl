{{/*
The number of a workload and the annotations that remember it, as JSON; without `replicas` where the
field is left out. Call with (dict "root" $ "component" NAME "kind" KIND "wanted" NUMBER); a workload of
several pods also with "pods" NUMBER of each of its replicas, and "name" where it is another.

`kubectl scale` may change the number at any moment. While the chart's own (kept in the annotation)
stays what it was, what is there stays too: Helm 3 would reset it without a word, and Helm 4's
server-side apply would fail with a conflict over .spec.replicas. A field that Helm has once applied
is never left out: the API server would make it 1.
*/}}
{{- define "seedbed.scale" -}}
{{- $values := .root.Values -}}
{{- $name := .name | default (printf "%s-%s" (include "seedbed.fullname" .root) .component) -}}
{{- $live := include "seedbed.liveWorkload" (dict "root" .root "name" $name "kind" .kind "pods" (.pods | default 1)) | fromJson -}}
{{- $last := dig "metadata" "annotations" dict $live -}}
{{- $chosen := get $last "seedbed.dev/replicas" -}}
{{- $before := get $last "seedbed.dev/resume-replicas" -}}
{{- $others := include "seedbed.othersScale" . -}}
{{- $number := .wanted -}}
{{- if and $live (or $others (eq (toString .wanted) $chosen)) -}}
  {{- $number = $before | default $live.spec.replicas -}}
{{- end -}}
{{- $annotations := dict "seedbed.dev/replicas" (empty $others | ternary (toString .wanted) ($chosen | default "0")) -}}
{{- $state := include "seedbed.state" .root | fromJson -}}
{{- /* Where the meter can see the number it takes it to zero itself, and brings it back. */ -}}
{{- $unseen := or (not $values.cost.enabled) $before (not (or $live $others)) -}}
{{- /* By hand or by the meter. It holds once the meter has remembered the numbers: of a release installed
with `paused` it sees them at the first upgrade without, and takes them to zero. */ -}}
{{- $paused := and $state.paused (not $before) (or $values.paused (ne $state.paused "value")) -}}
{{- if and $values.paused $unseen -}}
  {{- $_ := set $annotations "seedbed.dev/resume-replicas" (toString $number) -}}
  {{- dict "replicas" 0 "annotations" $annotations | toJson -}}
{{- else if and $others (not (or $chosen $before)) -}}
  {{- dict | toJson -}}
{{- else if or $state.finished (and $paused $state.resumeReplicas) -}}
  {{- dict "replicas" 0 "annotations" $annotations | toJson -}}
{{- else if and $live (or $values.paused $paused) -}}
  {{- dict "replicas" $live.spec.replicas "annotations" $annotations | toJson -}}
{{- else -}}
  {{- dict "replicas" (int $number) "annotations" $annotations | toJson -}}
{{- end -}}
{{- end -}}

{{/* Whether others choose the number of a component, "true" or nothing. Call with (dict "root" $ "component" NAME). */}}
{{- define "seedbed.othersScale" -}}
{{- $autoscaled := and (eq .component "actor") (ne .root.Values.actor.autoscaling.type "none") -}}
{{- if or $autoscaled (eq .root.Values.replicas "external") }}true{{ end -}}
{{- end -}}
