{{/* Devices by role, and the precision: what the learner would refuse in a pod that is paid already. */}}
{{- define "seedbed.validateRoles" -}}
{{- $experiment := include "seedbed.experimentValues" . | fromJson -}}
{{- $learner := get $experiment "learner" | default dict -}}
{{- $accelerator := .Values.learner.accelerator -}}
{{- $backend := get $learner "backend" | default "tensorflow" -}}
{{- $hosts := int (include "seedbed.hosts" .) -}}
{{- $precision := get $learner "precision" | default "float32" -}}
{{- if and (eq $precision "tensorfloat32") (ne $accelerator.type "gpu") -}}
  {{- fail (printf "experiment.learner.precision is tensorfloat32, a format of NVIDIA GPUs, and learner.accelerator.type is %s: say bfloat16, or float32" $accelerator.type) -}}
{{- end -}}
{{- $storage := dig "replay" "storage" "host" $learner -}}
{{- if and (eq $storage "device") (gt $hosts 1) (has (get $experiment "agent") (list "r2d2" "dqn")) -}}
  {{- fail (printf "experiment.learner.replay.storage is device and learner.hosts is %d: each host draws from a replay in its own memory; say storage: host" $hosts) -}}
{{- end -}}
{{- $devices := get $learner "devices" -}}
{{- if kindIs "map" $devices -}}
  {{- $inference := get $devices "inference" | default 0 | int -}}
  {{- $training := get $devices "training" | default 0 | int -}}
  {{- if and (eq $inference 0) (gt $training 1) -}}
    {{- fail (printf "experiment.learner.devices: inference 0 and training %d: with more than one device that trains, at least one must act; say inference: 1" $training) -}}
  {{- end -}}
  {{- if and $inference (not $training) -}}
    {{- fail (printf "experiment.learner.devices: inference %d and training 0: at least one device must train" $inference) -}}
  {{- end -}}
  {{- if $inference -}}
    {{- if ne $backend "jax" -}}
      {{- fail (printf "experiment.learner.devices.inference is %d and backend is %s, which uses one device: say experiment.learner.backend: jax" $inference $backend) -}}
    {{- end -}}
    {{- if eq $accelerator.type "none" -}}
      {{- fail (printf "experiment.learner.devices has %d devices and learner.accelerator.type is none: a pod without an accelerator has one device; say devices: auto, or ask for an accelerator" (add $inference $training)) -}}
    {{- end -}}
    {{- if and (gt $training 1) (eq $storage "device") -}}
      {{- fail (printf "experiment.learner.devices.training is %d and replay.storage is device, which is the memory of one device: say training: 1, or storage: host" $training) -}}
    {{- end -}}
    {{- $parts := mul $training $hosts -}}
    {{- $batch := get $learner "batch_size" | default 32 | int64 -}}
    {{- if mod $batch $parts -}}
      {{- fail (printf "experiment.learner.batch_size is %d, which cannot be divided among %d devices that train: say %d" $batch $parts (mul (add1 (div $batch $parts)) $parts)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
