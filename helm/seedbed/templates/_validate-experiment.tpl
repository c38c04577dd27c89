{{/* Keys of the experiment that are of the machine where its file was written. */}}
{{- define "seedbed.validateExperiment" -}}
{{- $experiment := include "seedbed.experimentValues" . | fromJson -}}
{{- $learner := get $experiment "learner" | default dict -}}
{{- $replay := get $learner "replay" | default dict -}}
{{- if get $learner "deterministic" -}}
  {{- fail "experiment.learner.deterministic is for `seedbed train`, which steps the environments itself: leave it out" -}}
{{- end -}}
{{- $network := include "seedbed.setting" (dict "root" . "path" "learner.network") -}}
{{- $options := get (include "seedbed.schema" . | fromJson).networks $network -}}
{{- range $name, $_ := get $learner "network_options" | default dict -}}
  {{- if and (kindIs "slice" $options) (not (has $name $options)) -}}
    {{- fail (printf "experiment.learner.network_options.%s is unknown to network %s, which takes %s" $name $network (join ", " $options | default "none")) -}}
  {{- end -}}
{{- end -}}
{{- $checkpoints := dig "checkpoint" "directory" "" $learner -}}
{{- if not (or .Values.learner.persistence.checkpoints (contains "://" $checkpoints) (include "seedbed.isInPod" (dict "root" . "path" $checkpoints))) -}}
  {{- fail (printf "experiment.learner.checkpoint.directory %q is not in the learner's pod: leave it out for the release's volume, or say learner.persistence.checkpoints: gs://BUCKET/PATH" $checkpoints) -}}
{{- end -}}
{{- $upload := get $learner "upload" | default "" -}}
{{- if not (or (contains "://" $upload) (include "seedbed.isInPod" (dict "root" . "path" $upload))) -}}
  {{- fail (printf "experiment.learner.upload %q is not in the learner's pod: leave it out, or name a bucket: gs://BUCKET/PATH" $upload) -}}
{{- end -}}
{{- $directory := get $replay "directory" | default "" -}}
{{- if not (include "seedbed.isInPod" (dict "root" . "path" $directory)) -}}
  {{- fail (printf "experiment.learner.replay.directory %q is not in the learner's pod: leave it out, or name a folder of the release's volume, such as /runs/replay" $directory) -}}
{{- end -}}
{{- range $address := get $replay "shards" | default list -}}
  {{- if regexMatch `^(unix:|localhost:|127\.|\[::1\])` $address -}}
    {{- fail (printf "experiment.learner.replay.shards names %s, which is in the pod itself: leave it out, and say replay.shards: 2 for shards of the release" $address) -}}
  {{- end -}}
{{- end -}}
{{- $agent := include "seedbed.agent" . | fromJson -}}
{{- $ofActor := mul (include "seedbed.setting" (dict "root" . "path" "actor.groups")) (include "seedbed.setting" (dict "root" . "path" "actor.envs_per_group")) -}}
{{- $replicas := int .Values.actor.replicas -}}
{{- $learners := int .Values.learner.replicas -}}
{{- $environments := mul (add $replicas (mul .Values.actor.sidecar $learners)) $ofActor -}}
{{- $batch := mul (include "seedbed.setting" (dict "root" . "path" "learner.batch_size")) $learners -}}
{{- if and $agent.synchronous $replicas (eq .Values.actor.autoscaling.type "none") (ne $environments $batch) -}}
  {{- fail (printf "experiment.agent is %s, whose batches hold every environment once: actor.replicas %d and actor.sidecar %v have %d environments, and %d learners' experiment.learner.batch_size sums to %d; make them equal: say experiment.learner.batch_size: %d" $experiment.agent $replicas .Values.actor.sidecar $environments $learners $batch (div $environments $learners)) -}}
{{- end -}}
{{- $inMemory := and (eq (include "seedbed.setting" (dict "root" . "path" "learner.replay.storage")) "host") (not $directory) (not .Values.replay.shards) -}}
{{- $limit := dig "limits" "memory" "" .Values.learner.resources -}}
{{- if and $agent.replay $inMemory $limit (hasPrefix "atari:" $experiment.environment.id) -}}
  {{- $bytes := 1 -}}
  {{- range list "learner.replay.capacity" "learner.unroll_length" "environment.atari.height" "environment.atari.width" -}}
    {{- $bytes = mul $bytes (include "seedbed.setting" (dict "root" $ "path" .)) -}}
  {{- end -}}
  {{- $capacity := include "seedbed.setting" (dict "root" . "path" "learner.replay.capacity") | int64 -}}
  {{- if gt (addf $bytes 1073741824) (include "seedbed.amount" $limit | float64) -}}
    {{- fail (printf "experiment.learner.replay.capacity %d takes %.0f GB of the learner's memory, and learner.resources.limits.memory is %v: say replay.shards: 4, whose pods have volumes, or learner.resources.limits.memory: %dGi" $capacity (divf $bytes 1e9) $limit (add 3 (div $bytes 1073741824))) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether a path is empty or on a volume of the learner's pod: "true" or nothing. Call with
(dict "root" $ "path" PATH). */}}
{{- define "seedbed.isInPod" -}}
{{- $path := .path -}}
{{- $found := or (not $path) (hasPrefix "/runs/" $path) -}}
{{- range .root.Values.learner.extraVolumeMounts -}}
  {{- $found = or $found (hasPrefix .mountPath $path) -}}
{{- end -}}
{{- if $found }}true{{ end -}}
{{- end -}}
