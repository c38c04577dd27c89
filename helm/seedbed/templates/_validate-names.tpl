{{/* Sections, names and labels. */}}
{{- define "seedbed.validateNames" -}}
{{- range $section := list "experiment" "image" "learner" "actor" "replay" "cost" "metrics" "networkPolicy" "auth" "tls" "pod" "rbac" -}}
  {{- if not (kindIs "map" (get $.Values $section)) -}}
    {{- fail (printf "%s is not there: leave it out for the defaults, or give its keys" $section) -}}
  {{- end -}}
{{- end -}}
{{- $name := include "seedbed.fullname" . -}}
{{- if contains "." $name -}}
  {{- fail (printf "the release's name (or fullnameOverride) %q has a dot, which names of Services must not have" $name) -}}
{{- end -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" $name) -}}
  {{- fail (printf "the release's name (or fullnameOverride) %q: names have small letters, digits and -, and end with a letter or a digit" $name) -}}
{{- end -}}
{{- range $role := list "learner" "actor" "replay" "cost" -}}
  {{- range (include "seedbed.pod" (dict "root" $ "component" $role) | fromJson).extraVolumes -}}
    {{- if has .name (list "tmp" "experiment" "auth" "tls" "runs" "replay" "socket" "shm" "state" "prices") -}}
      {{- fail (printf "%s.pod.extraVolumes has a volume %q, which is a name of the chart's own: choose another" $role .name) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $labelled := dict "extraLabels" .Values.extraLabels "pod.labels" .Values.pod.labels -}}
{{- range $role := list "learner" "actor" "replay" "cost" -}}
  {{- $_ := set $labelled (printf "%s.pod.labels" $role) (get (get $.Values $role).pod "labels" | default dict) -}}
{{- end -}}
{{- range $where, $labels := $labelled -}}
  {{- range $key := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" -}}
    {{- if hasKey $labels $key -}}
      {{- fail (printf "%s sets %s, by which the chart selects its own pods: choose another label" $where $key) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if gt (len $name) 35 -}}
  {{- fail (printf "the release's name (or fullnameOverride) %q has %d letters; the names of its pods leave room for 35: choose a shorter one (seedbed deploy --release NAME)" $name (len $name)) -}}
{{- end -}}
{{- $old := semverCompare "<1.36-0" .Capabilities.KubeVersion.Version -}}
{{- if and $old (not (regexMatch "^[a-z]" $name)) -}}
  {{- fail (printf "the release's name (or fullnameOverride) %q begins with a digit, which names of Services must not before Kubernetes 1.36 (here: %s): begin with a letter" $name .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if .Release.IsUpgrade -}}
  {{- $chart := printf "%s-" .Chart.Name -}}
  {{- range (lookup "apps/v1" "StatefulSet" .Release.Namespace "").items -}}
    {{- $labels := .metadata.labels | default dict -}}
    {{- $owner := get (.metadata.annotations | default dict) "meta.helm.sh/release-name" -}}
    {{- $learner := and (eq $owner $.Release.Name) (eq (get $labels "app.kubernetes.io/component" | toString) "learner") (hasPrefix $chart (get $labels "helm.sh/chart" | toString)) -}}
    {{- if and $learner (ne .metadata.name (include "seedbed.learner" $)) -}}
      {{- fail (printf "the learner of this release is called %s, and fullnameOverride %q makes it %s: its volume would stay behind; leave it as it was, or install another release" .metadata.name $.Values.fullnameOverride (include "seedbed.learner" $)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
