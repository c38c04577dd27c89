{{/*
Another experiment for a run that has begun: refused before its learner is replaced, as the learner
itself would refuse it (seedbed/runs/resume.py, with the same digest).

Compared is what the release's ConfigMap names with what these values name. A key that both leave out
keeps the value that the run records, whatever the default of this chart, and is no change; a key that
only one of them names has the default of this chart on the other side. What is compared are runs that
train, or are at zero: a learner that starts in vain has measured nothing. Without a cluster, and where
two charts have other defaults, the learner refuses instead.
*/}}
{{- define "seedbed.validateChange" -}}
{{- $live := dig "data" "experiment.yaml" "" (lookup "v1" "ConfigMap" .Release.Namespace (printf "%s-experiment" (include "seedbed.fullname" .))) -}}
{{- if and $live (include "seedbed.runIsHeld" .) -}}
{{- $old := fromYaml $live -}}
{{- $new := include "seedbed.experiment" . | fromYaml -}}
{{- $settings := (include "seedbed.schema" . | fromJson).settings -}}
{{- $agent := get $old "agent" | default $settings.agent.default -}}
{{- $family := regexFind `^\w+:` (dig "environment" "id" "" $old) | trimSuffix ":" -}}
{{- $optimizer := dig "learner" "optimizer" "name" (get $settings "learner.optimizer.name").default $old -}}
{{- $refused := list -}}
{{- $measured := list -}}
{{- $keys := list -}}
{{- $lines := list -}}
{{- range $key, $entry := $settings -}}
{{- if ne $entry.class "free" -}}
  {{- $before := include "seedbed.namedValue" (dict "tree" $old "path" $key) | fromJsonArray -}}
  {{- $after := include "seedbed.namedValue" (dict "tree" $new "path" $key) | fromJsonArray -}}
  {{- $read := and (eq ($entry.agent | default $agent) $agent) (eq ($entry.family | default $family) $family) -}}
  {{- if and $read (or $before $after) -}}
    {{- $was := $entry.default }}{{ if $before }}{{ $was = first $before }}{{ end -}}
    {{- $is := $entry.default }}{{ if $after }}{{ $is = first $after }}{{ end -}}
    {{- $class := $entry.class -}}
    {{- if eq $key "learner.optimizer.momentum" -}}
      {{- /* The state of RMSProp has velocities where it is not 0. */ -}}
      {{- if eq $optimizer "adam" }}{{ $class = "free" -}}
      {{- else if eq (eq (float64 $was) 0.0) (eq (float64 $is) 0.0) }}{{ $class = "result" }}{{ end -}}
    {{- end -}}
    {{- if and (ne $class "free") (ne (toRawJson $was) (toRawJson $is)) -}}
      {{- $text := printf "  %s: %s -> %s" $key (toRawJson $was) (toRawJson $is) -}}
      {{- if eq $class "identity" -}}
        {{- $refused = append $refused (printf "%s (%s)" $text $entry.reason) -}}
      {{- else -}}
        {{- $measured = append $measured $text -}}
        {{- $keys = append $keys (printf "%s=%s" $key (toRawJson $was)) -}}
        {{- $lines = append $lines (toRawJson (list $key $was $is)) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
{{- $run := include "seedbed.run" . -}}
{{- $another := printf "--set learner.run=%s-2, or another release" $run -}}
{{- if $refused -}}
  {{- fail (printf "resume refused: /runs/%s cannot be resumed with these settings changed:\n%s\nset them back, or begin a new run (with --set learner.initFrom=%s to start from these parameters where the shapes fit)\n  new run   %s" $run (join "\n" $refused) $run $another) -}}
{{- end -}}
{{- $digest := printf "c%s" (sortAlpha $lines | join "\n" | sha256sum | trunc 7) -}}
{{- $accepted := .Values.learner.acceptChange -}}
{{- if and $measured (ne $accepted $digest) -}}
  {{- $other := $accepted | empty | ternary "" (printf "learner.acceptChange %s names another difference: " $accepted) -}}
  {{- fail (printf "resume refused: %s/runs/%s is of a run with other settings, and what it measures would change in its middle:\n%s\nthree ways on:\n  new run       %s\n  old settings  set back: %s\n  this run      --set learner.acceptChange=%s" $other $run (join "\n" $measured) $another (join ", " $keys) $digest) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether a learner of this run has started, or all are at zero: "true" or nothing. One that is busy
may not be ready for a moment. */}}
{{- define "seedbed.runIsHeld" -}}
{{- $name := include "seedbed.learnerName" (dict "root" . "rank" 0) -}}
{{- $kind := include "seedbed.learnerKind" . -}}
{{- $live := include "seedbed.liveWorkload" (dict "root" . "name" $name "kind" $kind "pods" 1) | fromJson -}}
{{- $directory := printf "--run-dir=%s" (include "seedbed.runDirectory" .) | toJson -}}
{{- if and $live (contains $directory (toJson $live.spec)) -}}
  {{- $ready := dig "status" "readyReplicas" 0 $live | int -}}
  {{- range dig "status" "replicatedJobsStatus" list $live }}{{ $ready = add $ready (int .ready) }}{{ end -}}
  {{- if ne $kind "JobSet" -}}
    {{- $pod := lookup "v1" "Pod" .Release.Namespace (include "seedbed.learnerHost" (dict "root" . "rank" 0 "host" 0)) -}}
    {{- range dig "status" "containerStatuses" list $pod -}}
      {{- if and (eq .name "learner") .started }}{{ $ready = 1 }}{{ end -}}
    {{- end -}}
  {{- end -}}
  {{- if or $ready (eq (int $live.spec.replicas) 0) }}true{{ end -}}
{{- end -}}
{{- end -}}
