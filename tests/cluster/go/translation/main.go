// Command translate-in-tree reads one JSON object a line and prints, one line each, what k8s.io/csi-translation-lib makes of it:
//
//	{"ask": "volumeToCSI", "object": PersistentVolume}
//	{"ask": "podVolumeToCSI", "object": Volume, "namespace": NAMESPACE}
//	{"ask": "volumeToInTree", "object": PersistentVolume}
//	{"ask": "classToCSI", "object": StorageClass, "name": PLUGIN}
//	{"ask": "repairHandle", "name": DRIVER, "handle": HANDLE, "node": NODE}
//	{"ask": "yaml", "text": TEXT}
//
// The last is what sigs.k8s.io/yaml, the reader of kubectl and of the API server, makes of a text, as {"answer": {"value": VALUE}}.
// An answer is {"answer": OBJECT}, {"error": TEXT}, or {"panic": TEXT}.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	translation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

type question struct {
	Ask       string          `json:"ask"`
	Object    json.RawMessage `json:"object"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Handle    string          `json:"handle"`
	Node      string          `json:"node"`
	Text      string          `json:"text"`
}

type answer struct {
	Answer any    `json:"answer,omitempty"`
	Error  string `json:"error,omitempty"`
	Panic  string `json:"panic,omitempty"`
}

func translate(asked question) (any, error) {
	library, logger := translation.New(), klog.Background()
	switch asked.Ask {
	case "volumeToCSI":
		volume := &v1.PersistentVolume{}
		if err := json.Unmarshal(asked.Object, volume); err != nil {
			fail(err)
		}
		return library.TranslateInTreePVToCSI(logger, volume)
	case "podVolumeToCSI":
		volume := &v1.Volume{}
		if err := json.Unmarshal(asked.Object, volume); err != nil {
			fail(err)
		}
		return library.TranslateInTreeInlineVolumeToCSI(logger, volume, asked.Namespace)
	case "volumeToInTree":
		volume := &v1.PersistentVolume{}
		if err := json.Unmarshal(asked.Object, volume); err != nil {
			fail(err)
		}
		return library.TranslateCSIPVToInTree(volume)
	case "classToCSI":
		class := &storage.StorageClass{}
		if err := json.Unmarshal(asked.Object, class); err != nil {
			fail(err)
		}
		return library.TranslateInTreeStorageClassToCSI(logger, asked.Name, class)
	case "repairHandle":
		return library.RepairVolumeHandle(asked.Name, asked.Handle, asked.Node)
	case "yaml":
		value, err := yaml.YAMLToJSON([]byte(asked.Text))
		if err != nil {
			return nil, err
		}
		return map[string]json.RawMessage{"value": value}, nil
	}
	return nil, fmt.Errorf("translate-in-tree does not know %q", asked.Ask)
}

// answerTo survives a panic of the library: that is an answer, too.
func answerTo(asked question) (given answer) {
	defer func() {
		if why := recover(); why != nil {
			given = answer{Panic: fmt.Sprint(why)}
		}
	}()
	object, err := translate(asked)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Answer: object}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "translate-in-tree:", err)
	os.Exit(1)
}

func main() {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	defer out.Flush()
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for decoder.More() {
		var asked question
		if err := decoder.Decode(&asked); err != nil {
			fail(err)
		}
		if err := encoder.Encode(answerTo(asked)); err != nil {
			fail(err)
		}
	}
}
