{{/* A pod of the learner: of its StatefulSet, or a host of one that has several. Call with
(dict "root" . "rank" RANK); the rank is of a JobSet, of which each learner has one. */}}
{{- define "seedbed.learnerPod" -}}
{{- $rank := .rank }}
{{- with .root }}
{{- $learner := .Values.learner }}
{{- $several := include "seedbed.several" . }}
{{- $hosts := int (include "seedbed.hosts" .) }}
{{- $kind := include "seedbed.learnerKind" . }}
{{- $resource := get (dict "gpu" "nvidia.com/gpu" "tpu" "google.com/tpu") $learner.accelerator.type }}
{{- $resources := deepCopy $learner.resources }}
{{- with $resource }}
{{- $count := dict . $learner.accelerator.count }}
{{- $_ := set $resources "requests" (merge ($resources.requests | default dict) $count) }}
{{- $_ := set $resources "limits" (merge ($resources.limits | default dict) $count) }}
{{- end }}
metadata:
  labels:
    {{- include "seedbed.podLabels" (dict "root" . "component" "learner" "pods" "learner") | nindent 4 }}
  annotations:
    checksum/experiment: {{ include "seedbed.experiment" . | sha256sum | trunc 16 | quote }}
    cluster-autoscaler.kubernetes.io/safe-to-evict: "false"
    {{- if eq $learner.persistence.type "gcsfuse" }}
    gke-gcsfuse/volumes: "true"
    {{- end }}
    {{- include "seedbed.scrape" (dict "root" . "port" 9090) | nindent 4 }}
spec:
  serviceAccountName: {{ include "seedbed.serviceAccountName" (dict "root" . "component" "learner") }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $learner.spot | ternary (min 15 $learner.terminationGracePeriodSeconds) $learner.terminationGracePeriodSeconds }}
  securityContext:
    {{- include "seedbed.podSecurity" . | nindent 4 }}
  {{- include "seedbed.scheduling" (dict "root" . "component" "learner") | nindent 2 }}
  {{- if eq $kind "JobSet" }}
  restartPolicy: Never # a host that ends, ends the Job, and the JobSet starts all again
  {{- end }}
  containers:
    - name: learner
      image: {{ include "seedbed.image" (dict "root" . "component" "learner") }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - /etc/seedbed/experiment.yaml
        - --listen=[::]:8470
        {{- if .Values.actor.sidecar }}
        - --listen={{ include "seedbed.socket" . }}
        {{- end }}
        {{- if $several }}
        - --rank=$(SEEDBED_RANK)
        {{- if gt $hosts 1 }}
        - --set=learner.coordinator={{ include "seedbed.coordinator" (dict "root" . "rank" (eq $kind "JobSet" | ternary $rank "$(SEEDBED_RANK)")) }}
        {{- end }}
        {{- end }}
        {{- $own := include "seedbed.ownFolder" . }}
        - --run-dir={{ include "seedbed.runDirectory" . }}
        - --owner={{ include "seedbed.owner" . }}
        {{- with $.root.Values.set }}
        - --called-as=seedbed deploy SWEEP -n {{ $.root.Release.Namespace }} --name {{ . }}
        {{- else }}
        - --called-as=helm -n {{ $.root.Release.Namespace }} upgrade {{ $.root.Release.Name }}
        {{- end }}
        {{- with $learner.acceptChange }}
        - --change={{ . }}
        {{- end }}
        {{- with $learner.initFrom }}
        - --init-from=/runs/{{ . }}{{ $own }}
        {{- end }}
        - --linger
        {{- if $learner.evaluation.enabled }}
        - --set=evaluation.every_frames=0 # the container beside it evaluates
        {{- end }}
        - --set=learner.metrics_port=9090
        {{- if ne $learner.accelerator.type "none" }}
        - --set=learner.device={{ $learner.accelerator.type }}
        {{- end }}
        {{- if and $learner.spot (not (dig "learner" "checkpoint" "every_s" "" (include "seedbed.experimentValues" . | fromJson))) }}
        - --set=learner.checkpoint.every_s=60
        {{- end }}
        {{- with include "seedbed.checkpoints" . }}
        - --set=learner.checkpoint.directory={{ . }}
        {{- if not $learner.run }}
        # Where this release had its checkpoints before each had a folder of its own.
        - --adopt={{ include "seedbed.checkpointsBase" $.root }}{{ if $several }}/learner-$(SEEDBED_RANK){{ end }}
        {{- end }}
        {{- end }}
        {{- with include "seedbed.setting" (dict "root" . "path" "learner.upload") | trimSuffix "/" }}
        - --set=learner.upload={{ . }}/{{ include "seedbed.owner" $.root }}{{ if $several }}/learner-$(SEEDBED_RANK){{ end }}
        {{- end }}
        {{- if .Values.cost.enabled }}
        - --set=cost.meter=http://{{ include "seedbed.cost" . }}:9092/status
        {{- end }}
        {{- include "seedbed.listenArgs" . | nindent 8 }}
      env:
        {{- include "seedbed.env" . | nindent 8 }}
        {{- include "seedbed.credentialEnv" . | nindent 8 }}
        {{- if eq $kind "JobSet" }}
        - name: SEEDBED_HOST
          valueFrom: {fieldRef: {fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
        {{- end }}
        {{- if $several }}
        - name: SEEDBED_RANK
          {{- if eq $kind "JobSet" }}
          value: {{ $rank | quote }}
          {{- else }}
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
          {{- end }}
        {{- if include "seedbed.rankKeys" . }}
        - {name: SEEDBED_RANK_KEY_FILE, value: /etc/seedbed-rank/key}
        {{- end }}
        {{- end }}
      ports:
        - {name: grpc, containerPort: 8470}
        - {name: metrics, containerPort: 9090}
        {{- if gt $hosts 1 }}
        - {name: hosts, containerPort: 8476}
        {{- end }}
        {{- if $several }}
        - {name: peers, containerPort: 8490}
        {{- end }}
      securityContext:
        {{- include "seedbed.containerSecurity" . | nindent 8 }}
      resources:
        {{- toYaml $resources | nindent 8 }}
      # By HTTP, so that they work with mTLS on the gRPC port as well.
      startupProbe:
        httpGet: {path: /readyz, port: metrics}
        initialDelaySeconds: 5
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: {{ div (add $learner.startupSeconds 4) 5 }}
      readinessProbe: # restored from its checkpoint, and serving
        httpGet: {path: /readyz, port: metrics}
        periodSeconds: 5
        timeoutSeconds: 5
      livenessProbe: # a thread has had work in front of it and taken none for too long
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 20
        timeoutSeconds: 10
        failureThreshold: 3
      terminationMessagePolicy: FallbackToLogsOnError
      volumeMounts:
        - {name: runs, mountPath: /runs}
        {{- include "seedbed.mounts" . | nindent 8 }}
        {{- if include "seedbed.rankKeys" . }}
        # The key of its own rank alone. A file that is mounted so never changes in a running pod.
        - {name: rank-keys, mountPath: /etc/seedbed-rank/key, subPathExpr: learner-$(SEEDBED_RANK), readOnly: true}
        {{- end }}
        {{- if .Values.actor.sidecar }}
        - {name: socket, mountPath: /run/seedbed}
        {{- end }}
    {{- if $learner.evaluation.enabled }}
    {{- include "seedbed.evaluation" . | nindent 4 }}
    {{- end }}
    {{- if .Values.actor.sidecar }}
    {{- if eq $kind "JobSet" }}
  # A pod ends with its learner only where the actors are no containers of their own.
  initContainers:
    {{- end }}
    {{- include "seedbed.sidecar" . | nindent 4 }}
    {{- if eq $kind "JobSet" }}
      restartPolicy: Always
    {{- end }}
    {{- end }}
  volumes:
    {{- include "seedbed.volumes" (dict "root" . "component" "learner") | nindent 4 }}
    {{- if include "seedbed.rankKeys" . }}
    - name: rank-keys
      secret:
        secretName: {{ include "seedbed.authSecret" . }}
        items: # named, so that a pod waits for the keys
          {{- range $number := until (int $learner.replicas) }}
          - {key: learner-{{ $number }}, path: learner-{{ $number }}}
          {{- end }}
        defaultMode: 0440
    {{- end }}
    {{- with $learner.persistence.existingClaim | default (include "seedbed.hostsClaim" .) }}
    - name: runs
      persistentVolumeClaim: {claimName: {{ . }}}
    {{- end }}
    {{- if .Values.actor.sidecar }}
    {{- include "seedbed.sidecarVolumes" . | nindent 4 }}
    {{- end }}
    {{- if $learner.evaluation.enabled }}
    - name: evaluation-tmp
      emptyDir: {}
    {{- end }}
    {{- if eq $learner.persistence.type "none" }}
    - name: runs
      emptyDir: {}
    {{- else if eq $learner.persistence.type "gcsfuse" }}
    - name: runs
      csi:
        driver: gcsfuse.csi.storage.gke.io
        volumeAttributes:
          bucketName: {{ $learner.persistence.bucket }}
          mountOptions: implicit-dirs,uid=10001,gid=10001,file-mode=664,dir-mode=775
    {{- end }}
{{- end }}
{{- end -}}
