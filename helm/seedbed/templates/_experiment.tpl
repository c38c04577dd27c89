{{/*
The experiment of the values: `experimentFile`, and the keys of `experiment` over it, as JSON. Every
template reads this one and never `.Values.experiment`. The chart sets itself what belongs to the
machine where the file was written.
*/}}
{{- define "seedbed.experimentValues" -}}
{{- $file := .Values.experimentFile | default "environment: {id: 'atari:Pong'}" | fromYaml -}}
{{- if and (hasKey $file "Error") (eq (len $file) 1) -}}
  {{- fail (printf "experimentFile is no YAML mapping of keys to values (%s): give a file such as experiments/pong-vtrace.yaml with --set-file" $file.Error) -}}
{{- end -}}
{{- if not (get $file "environment") -}}
  {{- fail "experimentFile has no section environment: give an experiment's file with --set-file, such as experiments/pong-vtrace.yaml" -}}
{{- end -}}
{{- $_ := unset $file "name" -}}
{{- if .Values.replay.shards -}}
  {{- $learner := get $file "learner" | default dict -}}
  {{- $_ := set $learner "replay" (omit (get $learner "replay" | default dict) "storage" "capacity" "directory" "shards") -}}
  {{- $_ := set $file "learner" $learner -}}
{{- end -}}
{{- if get $file "learner" }}{{ $_ := unset $file.learner "coordinator" }}{{ end -}}
{{- if get $file "gossip" -}}
  {{- $_ := set $file "gossip" (omit $file.gossip "addresses") -}}
{{- end -}}
{{- mergeOverwrite $file (deepCopy .Values.experiment) | toJson -}}
{{- end -}}

{{/* The experiment with its name, its replay shards, its learners and its hosts, as the pods read it. */}}
{{- define "seedbed.experiment" -}}
{{- $experiment := include "seedbed.experimentValues" . | fromJson -}}
{{- if not $experiment.name }}{{ $_ := set $experiment "name" (include "seedbed.fullname" .) }}{{ end -}}
{{- with .Values.replay -}}
  {{- if .shards -}}
    {{- $replay := dict "storage" "remote" "capacity" (mul .shards .sequences) "shards" (include "seedbed.replayAddresses" $ | fromJsonArray) -}}
    {{- $experiment = mergeOverwrite $experiment (dict "learner" (dict "replay" $replay)) -}}
  {{- end -}}
{{- end -}}
{{- if include "seedbed.several" . -}}
  {{- $gossip := dict "replicas" (int .Values.learner.replicas) "topology" .Values.learner.topology "addresses" (include "seedbed.peers" . | fromJsonArray) -}}
  {{- $experiment = mergeOverwrite $experiment (dict "gossip" $gossip) -}}
{{- end -}}
{{- if gt (int (include "seedbed.hosts" .)) 1 -}}
  {{- $hosts := dict "hosts" (int (include "seedbed.hosts" .)) -}}
  {{- /* Several learners are told theirs as an argument. */ -}}
  {{- if not (include "seedbed.several" .) }}{{ $_ := set $hosts "coordinator" (include "seedbed.coordinator" (dict "root" . "rank" 0)) }}{{ end -}}
  {{- $experiment = mergeOverwrite $experiment (dict "learner" $hosts) -}}
{{- end -}}
{{ toYaml $experiment }}
{{- end -}}

{{/* Settings and agents of the experiment's schema, as JSON (tools/chart_schema.py). */}}
{{- define "seedbed.schema" -}}
{{ .Files.Get "files/schema.json" }}
{{- end -}}

{{/* A setting, as text: the experiment's, or else the schema's default. Call with (dict "root" $ "path" PATH).
Both are parsed once a rendering, and kept among the values. */}}
{{- define "seedbed.setting" -}}
{{- $parsed := get .root.Values "parsedExperiment" -}}
{{- if not $parsed -}}
  {{- $parsed = dict "named" (include "seedbed.experimentValues" .root | fromJson) "settings" (include "seedbed.schema" .root | fromJson).settings -}}
  {{- $_ := set .root.Values "parsedExperiment" $parsed -}}
{{- end -}}
{{- $value := get (get $parsed.settings .path) "default" -}}
{{- range include "seedbed.namedValue" (dict "tree" $parsed.named "path" .path) | fromJsonArray }}{{ $value = . }}{{ end -}}
{{- if kindIs "string" $value }}{{ $value }}{{ else if not (kindIs "invalid" $value) }}{{ toRawJson $value }}{{ end -}}
{{- end -}}

{{/* The value at a path of a tree, in a JSON list; an empty one without. Call with
(dict "tree" TREE "path" PATH). */}}
{{- define "seedbed.namedValue" -}}
{{- $node := .tree -}}
{{- $there := true -}}
{{- range $part := splitList "." .path -}}
  {{- $there = and $there (kindIs "map" $node) (hasKey $node $part) -}}
  {{- if $there }}{{ $node = get $node $part }}{{ end -}}
{{- end -}}
{{ $there | ternary (list $node) list | toJson }}
{{- end -}}

{{/* Properties of the experiment's agent, as JSON; {} of a `module:Class`. */}}
{{- define "seedbed.agent" -}}
{{ get (include "seedbed.schema" . | fromJson).agents (include "seedbed.setting" (dict "root" . "path" "agent")) | default dict | toJson }}
{{- end -}}

{{/* The shards' exponent must be the learner's. */}}
{{- define "seedbed.priorityExponent" -}}
{{ include "seedbed.setting" (dict "root" . "path" "learner.replay.priority_exponent") }}
{{- end -}}

{{/* What of it an actor's process depends on: a new learning rate restarts no actor. */}}
{{- define "seedbed.actorExperiment" -}}
{{ pick (include "seedbed.experimentValues" . | fromJson) "seed" "environment" "actor" | toYaml }}
{{- end -}}
