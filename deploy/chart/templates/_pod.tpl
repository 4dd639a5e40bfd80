{{- /* What every pod of the chart has: the nodes that it may run on, the image's user, and nothing that it may do or write. */}}
{{- define "stint.pod" -}}
serviceAccountName: {{ include "stint.serviceAccount" . | toYaml }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- with .Values.user }}
  runAsUser: {{ int64 . }}
  runAsGroup: {{ int64 . }}
  fsGroup: {{ int64 . }}
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "stint.containerSecurity" -}}
image: {{ include "stint.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "stint.secretMounts" -}}
{{- range .Values.secrets }}
- {name: {{ printf "secret-%s" . | replace "." "-" | trunc 63 | trimSuffix "-" }}, mountPath: /run/secrets/{{ . }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "stint.secretVolumes" -}}
{{- range .Values.secrets }}
- name: {{ printf "secret-%s" . | replace "." "-" | trunc 63 | trimSuffix "-" }}
  secret: {secretName: {{ . | toYaml }}, defaultMode: 0440}
{{- end }}
{{- end }}
