package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A volume is a folder of a pod, made as the kubelet makes it.
type volume struct {
	folder string
	of     string // the ConfigMap or the Secret that it shows; "": it is empty at first, and the pod's own
	mode   os.FileMode
	group  int
}

// newVolume makes a volume of a pod whose processes have group, the pod's fsGroup.
func newVolume(v corev1.Volume, folder string, group int) (*volume, error) {
	made := &volume{folder: folder, mode: 0o644, group: group}
	var mode *int32
	plain := true
	switch {
	case v.ConfigMap != nil:
		made.of, mode = configMap+v.ConfigMap.Name, v.ConfigMap.DefaultMode
		plain = v.ConfigMap.Items == nil
	case v.Secret != nil:
		made.of, mode = secret+v.Secret.SecretName, v.Secret.DefaultMode
		plain = v.Secret.Items == nil
	default:
		plain = v.EmptyDir != nil && v.EmptyDir.Medium == ""
	}
	if !plain {
		return nil, fmt.Errorf("volume %s is of a kind that is not known here", v.Name)
	}
	if mode != nil {
		made.mode = os.FileMode(*mode)
	}
	permissions := os.FileMode(0o755)
	if made.of == "" {
		permissions = 0o777
	}
	return made, errors.Join(os.Mkdir(folder, 0o755), made.own(folder, permissions))
}

// own gives a file or a folder to the pod's group, as the kubelet does for fsGroup.
func (v *volume) own(at string, mode os.FileMode) error {
	info, err := os.Stat(at)
	if err != nil {
		return err
	}
	mode |= 0o440
	if v.of == "" {
		mode |= 0o220
	}
	if info.IsDir() {
		mode |= os.ModeSetgid | 0o110
	}
	return errors.Join(os.Chown(at, 0, v.group), os.Chmod(at, mode))
}

// write shows files in the volume in place of those that it shows now, at one moment. It is the order of the
// kubelet's atomic writer: a new folder with the time, its files, and the link ..data to it.
func (v *volume) write(files map[string]string) error {
	data := filepath.Join(v.folder, "..data")
	before, err := os.Readlink(data)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	next, err := os.MkdirTemp(v.folder, time.Now().UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		return err
	}
	for name, text := range files {
		at := filepath.Join(next, name)
		if err := errors.Join(os.WriteFile(at, []byte(text), 0o600), v.own(at, v.mode)); err != nil {
			return err
		}
	}
	if err := v.own(next, 0o755); err != nil {
		return err
	}
	link := filepath.Join(v.folder, "..data_tmp")
	if err := errors.Join(os.Symlink(filepath.Base(next), link), os.Rename(link, data)); err != nil {
		return err
	}
	for name := range files {
		err := os.Symlink(filepath.Join("..data", name), filepath.Join(v.folder, name))
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if before == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(v.folder, before))
}
