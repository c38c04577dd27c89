{{/*
A StatefulSet, a Deployment or what runs several hosts, with what the values add to its pods. Names win over the chart's: a label,
an annotation or a variable is there once, and `pod.spec` comes last.
Call with (dict "root" $ "component" ROLE "text" YAML).
*/}}
{{- define "seedbed.workload" -}}
{{- $pod := include "seedbed.pod" . | fromJson -}}
{{- range $key, $instead := dict "containers" "extraContainers" "initContainers" "initContainers" "volumes" "extraVolumes" -}}
  {{- if hasKey $pod.spec $key -}}
    {{- fail (printf "%s.pod.spec.%s would take the place of the chart's: say %s.pod.%s" $.component $key $.component $instead) -}}
  {{- end -}}
{{- end -}}
{{- $object := fromYaml .text -}}
{{- with $object.Error }}{{ fail . }}{{ end -}}
{{- $template := $object.spec.template -}}
{{- if eq $object.kind "CronJob" }}{{ $template = $object.spec.jobTemplate.spec.template }}{{ end -}}
{{- if eq $object.kind "JobSet" }}{{ $template = (first $object.spec.replicatedJobs).template.spec.template }}{{ end -}}
{{- with $pod.annotations -}}
  {{- $_ := set $template.metadata "annotations" (mergeOverwrite ($template.metadata.annotations | default dict) .) -}}
{{- end -}}
{{- $spec := $template.spec -}}
{{- $main := first $spec.containers -}}
{{- $_ := set $main "env" (include "seedbed.mergedEnv" (dict "env" $main.env "own" $pod.env) | fromJsonArray) -}}
{{- with $pod.envFrom }}{{ $_ := set $main "envFrom" . }}{{ end -}}
{{- $mounts := concat $main.volumeMounts $pod.extraVolumeMounts -}}
{{- $volumes := concat $spec.volumes $pod.extraVolumes -}}
{{- with $pod.shmSize -}}
  {{- $mounts = append $mounts (dict "name" "shm" "mountPath" "/dev/shm") -}}
  {{- $volumes = append $volumes (dict "name" "shm" "emptyDir" (dict "medium" "Memory" "sizeLimit" .)) -}}
{{- end -}}
{{- $_ := set $main "volumeMounts" $mounts -}}
{{- $_ := set $spec "volumes" $volumes -}}
{{- /* A Job's pod ends with its last container. */ -}}
{{- if ne $object.kind "CronJob" }}{{ $_ := set $spec "containers" (concat $spec.containers $pod.extraContainers) }}{{ end -}}
{{- with $pod.initContainers }}{{ $_ := set $spec "initContainers" (concat ($spec.initContainers | default list) .) }}{{ end -}}
{{- $_ := mergeOverwrite $spec (deepCopy $pod.spec) -}}
{{- toYaml $object -}}
{{- end -}}

{{/* Variables of the chart without those of the same name in the values, and these. A JSON list. Call
with (dict "env" LIST "own" LIST). */}}
{{- define "seedbed.mergedEnv" -}}
{{- $names := list -}}
{{- range .own }}{{ $names = append $names .name }}{{ end -}}
{{- $env := list -}}
{{- range .env }}{{ if not (has .name $names) }}{{ $env = append $env . }}{{ end }}{{ end -}}
{{- concat $env .own | toJson -}}
{{- end -}}
