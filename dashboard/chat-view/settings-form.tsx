import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { DEFAULT_SETTINGS, settingRefusal, type TypedSettings } from './chat-settings.js';
import { changeSettings } from './chat-store.js';
import type { Answer } from './conversation.js';
import { ChoiceField, NumberField, TextField, ToolChoiceField, type FieldProps } from './setting-fields.js';

interface SettingsFormProps {
  settings: TypedSettings;
  /** The last answer, whose error may name a field; null: there is none. */
  answer: Answer | null;
}

/** The settings for the next question. */
export function SettingsForm({ settings, answer }: SettingsFormProps): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const refusal = settingRefusal(settings, answer);
  const refused = refusal?.words ?? '';
  useEffect(() => {
    // The words beside a field are seen only where the fields are.
    if (refused !== '') setOpen(true);
  }, [refused]);
  const props = { settings, refusal };
  return (
    <details class="card chat-settings" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Settings</summary>
      <SamplingGroups {...props} />
      <Group title="Reasoning and template">
        <ChoiceField name="thinking" hint="where the model can do both" {...props} />
        <ChoiceField name="reasoningEffort" hint="counts where the model has degrees" {...props} />
        <ChoiceField name="arithmetic" hint="refused where main computes otherwise" {...props} />
        <TextField name="system" hint="comes before the conversation" rows={2} isCode={false} {...props} />
        <TextField
          name="templateVariables"
          hint='JSON, for example {"enable_thinking": false}'
          rows={1}
          isCode
          {...props}
        />
      </Group>
      <FormatGroups {...props} />
      <ResetButton settings={settings} />
    </details>
  );
}

function SamplingGroups(props: FieldProps): JSX.Element {
  return (
    <>
      <Group title="Choice of tokens">
        <NumberField name="temperature" {...props} />
        <NumberField name="topP" {...props} />
        <NumberField name="topK" {...props} />
        <NumberField name="minP" {...props} />
        <NumberField name="seed" {...props} />
        <NumberField name="alternatives" {...props} />
      </Group>
      <Group title="Repetitions and biases">
        <NumberField name="repetitionPenalty" {...props} />
        <NumberField name="presencePenalty" {...props} />
        <NumberField name="frequencyPenalty" {...props} />
        <TextField
          name="logitBias"
          hint='JSON: what is added to the logits of tokens, by their ids: {"1734": -100} forbids one'
          rows={1}
          isCode
          {...props}
        />
      </Group>
      <Group title="Length">
        <NumberField name="maxTokens" {...props} />
        <ChoiceField name="ignoreEos" hint="up to the most tokens, or the context" {...props} />
        <TextField
          name="stop"
          hint={'One a line: the answer ends before the first that comes. "\\n\\n" in quotes is an empty line'}
          rows={1}
          isCode
          {...props}
        />
      </Group>
    </>
  );
}

function FormatGroups(props: FieldProps): JSX.Element {
  return (
    <>
      <Group title="Form of the answer">
        <ChoiceField name="format" hint="the model cannot leave the form" {...props} />
        {props.settings.format === 'schema' && (
          <TextField name="schema" hint="JSON: docs/http.md lists the keywords" rows={4} isCode {...props} />
        )}
      </Group>
      <Group title="Tools">
        <TextField
          name="tools"
          hint={
            'JSON: a list of {"name", "description", "parameters": a JSON schema}. Calls are shown in the answer, ' +
            'and you give their results'
          }
          rows={3}
          isCode
          {...props}
        />
        <ToolChoiceField hint="of a forced call only the first answer" {...props} />
        <ChoiceField name="parallelToolCalls" hint="counts where calls are forced" {...props} />
      </Group>
    </>
  );
}

function Group({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <fieldset class="settings-group">
      <legend class="small">{title}</legend>
      <div class="settings-grid">{children}</div>
    </fieldset>
  );
}

/** Sets all fields to their defaults, and back again as long as nothing else was changed. */
function ResetButton({ settings }: { settings: TypedSettings }): JSX.Element {
  const [before, setBefore] = useState<TypedSettings | null>(null);
  const isDefault = isSame(settings, DEFAULT_SETTINGS);
  const canUndo = before !== null && isDefault;
  const press = (): void => {
    setBefore(canUndo ? null : settings);
    changeSettings(canUndo ? before : DEFAULT_SETTINGS);
  };
  return (
    <button type="button" class="button" disabled={isDefault && !canUndo} onClick={press}>
      {canUndo ? 'Undo the reset' : 'Reset to defaults'}
    </button>
  );
}

function isSame(left: TypedSettings, right: TypedSettings): boolean {
  return JSON.stringify(left) === JSON.stringify(right);
}
