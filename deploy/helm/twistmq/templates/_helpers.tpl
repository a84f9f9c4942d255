{{- define "twistmq.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "twistmq.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "twistmq.labels" -}}
{{ include "twistmq.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{- define "twistmq.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- /* The addresses of the name servers, for brokers and the console. */ -}}
{{- define "twistmq.namesrvAddr" -}}
{{- if .Values.namesrv.external -}}
{{ .Values.namesrv.external }}
{{- else -}}
{{- $name := printf "%s-namesrv" (include "twistmq.fullname" .) -}}
{{- range $index := until (int .Values.namesrv.replicas) -}}
{{- if $index }};{{ end }}{{ $name }}-{{ $index }}.{{ $name }}.{{ $.Release.Namespace }}.svc:9876
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The members of a group, as dLegerPeers names them. */ -}}
{{- define "twistmq.members" -}}
{{- $name := printf "%s-broker" (include "twistmq.fullname" .) -}}
{{- range $index := until (int .Values.broker.members) -}}
{{- if $index }};{{ end }}n{{ $index }}-{{ $name }}-{{ $index }}.{{ $name }}.{{ $.Release.Namespace }}.svc:40911
{{- end -}}
{{- end -}}

{{- define "twistmq.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10911
runAsGroup: 10911
fsGroup: 10911
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "twistmq.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "twistmq.claim" -}}
metadata:
  name: data
spec:
  accessModes: [ReadWriteOnce]
  {{- with .storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests: {storage: {{ .storage }}}
{{- end -}}

{{- /* A StatefulSet of brokers: root, name, file (the key of the ConfigMap), replicas. */ -}}
{{- define "twistmq.brokers" -}}
{{- $root := .root -}}
{{- $values := $root.Values.broker -}}
{{- $fullname := include "twistmq.fullname" $root -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ .name }}
  labels:
    {{- include "twistmq.labels" (dict "root" $root "component" "broker") | nindent 4 }}
    twistmq/part: {{ .part }}
spec:
  serviceName: {{ $fullname }}-broker
  replicas: {{ .replicas }}
  # A new group begins once all of its members have heard each other.
  podManagementPolicy: Parallel
  selector:
    matchLabels:
      {{- include "twistmq.selector" (dict "root" $root "component" "broker") | nindent 6 }}
      twistmq/part: {{ .part }}
  template:
    metadata:
      labels:
        {{- include "twistmq.labels" (dict "root" $root "component" "broker") | nindent 8 }}
        twistmq/part: {{ .part }}
      annotations:
        checksum/settings: {{ include (print $root.Template.BasePath "/settings.yaml") $root | sha256sum }}
    spec:
      terminationGracePeriodSeconds: {{ $values.stopSeconds }}
      securityContext:
        {{- include "twistmq.podSecurity" $root | nindent 8 }}
      {{- with $root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchLabels:
                    {{- include "twistmq.selector" (dict "root" $root "component" "broker") | nindent 20 }}
      containers:
        - name: broker
          image: {{ include "twistmq.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            - broker
            - -c
            - /etc/twistmq/{{ .file }}
            - brokerIP1={{ $values.address }}
            - brokerIP2=$(POD_IP)
            {{- if eq $root.Values.shape "group" }}
            - dLegerSelfId=n$(POD_INDEX)
            {{- end }}
          env:
            - name: POD_IP
              valueFrom: {fieldRef: {fieldPath: status.podIP}}
            {{- if eq $root.Values.shape "group" }}
            - name: POD_INDEX
              valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
            {{- end }}
          ports:
            - {name: broker, containerPort: 10911}
            - {name: vip, containerPort: 10909}
            {{- if eq $root.Values.shape "pair" }}
            - {name: ha, containerPort: 10912}
            {{- end }}
            {{- if eq $root.Values.shape "group" }}
            - {name: members, containerPort: 40911}
            {{- end }}
            - {name: metrics, containerPort: 5557}
          # The end of a large log is read before the port is opened.
          startupProbe:
            tcpSocket: {port: broker}
            periodSeconds: 5
            failureThreshold: 120
          livenessProbe:
            tcpSocket: {port: broker}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /health, port: metrics}
            periodSeconds: 5
            timeoutSeconds: 5
          securityContext:
            {{- include "twistmq.containerSecurity" $root | nindent 12 }}
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          volumeMounts:
            - {name: data, mountPath: /data}
            - {name: settings, mountPath: /etc/twistmq, readOnly: true}
            - {name: tmp, mountPath: /tmp}
            {{- with $values.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: settings
          configMap: {name: {{ $fullname }}-settings}
        - name: tmp
          emptyDir: {}
        {{- with $values.volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumeClaimTemplates:
    - {{- include "twistmq.claim" $values | nindent 6 }}
{{- end -}}
