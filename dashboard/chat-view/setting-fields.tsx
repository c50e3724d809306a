import type { JSX } from 'preact';
import { useId } from 'preact/hooks';
import {
  CHOICE_SETTINGS,
  NUMBER_SETTINGS,
  settingProblem,
  TEXT_TITLES,
  toolChoices,
  type ChoiceName,
  type NumberName,
  type SettingName,
  type TextName,
  type TypedSettings,
} from './chat-settings.js';
import { changeSettings } from './chat-store.js';

/** The settings as typed, and main's words about one of them. */
export interface FieldProps {
  settings: TypedSettings;
  refusal: { name: SettingName; words: string } | null;
}

interface FieldAttributes {
  id: string;
  'aria-invalid': boolean;
  'aria-describedby': string;
  'data-setting': SettingName;
}

/** The attributes of a field that is described by its hint, or by what is wrong with it. */
function useNote(name: SettingName, hint: string, { settings, refusal }: FieldProps): [FieldAttributes, JSX.Element] {
  const fieldId = useId();
  const id = `${fieldId}-note`;
  const own = settingProblem(settings, name);
  const problem = own === '' && refusal?.name === name ? refusal.words : own;
  const note = (
    <span id={id} class={problem === '' ? 'small quiet' : 'small setting-wrong'}>
      {problem === '' ? hint : problem}
    </span>
  );
  return [{ id: fieldId, 'aria-invalid': problem !== '', 'aria-describedby': id, 'data-setting': name }, note];
}

/** The field of a number. A value that is no number within the range is marked, and questions are then not sent. */
export function NumberField({ name, ...props }: FieldProps & { name: NumberName }): JSX.Element {
  const { title, hint } = NUMBER_SETTINGS[name];
  const [attributes, note] = useNote(name, hint, props);
  return (
    <div class="setting">
      <label for={attributes.id}>{title}</label>
      <input
        {...attributes}
        class="field"
        inputMode="decimal"
        autocomplete="off"
        value={props.settings[name]}
        onInput={(event) => changeSettings({ [name]: event.currentTarget.value })}
      />
      {note}
    </div>
  );
}

export function ChoiceField({ name, hint, ...props }: FieldProps & { name: ChoiceName; hint: string }): JSX.Element {
  const { title, choices, words } = CHOICE_SETTINGS[name];
  return <Choice name={name} title={title} choices={choices} words={words} hint={hint} {...props} />;
}

/** The choice among the tools that stand in their field. */
export function ToolChoiceField({ hint, ...props }: FieldProps & { hint: string }): JSX.Element {
  const { settings } = props;
  const known = toolChoices(settings.tools);
  const choices = known.includes(settings.toolChoice) ? known : [...known, settings.toolChoice];
  const first = ['as the model wants', 'none', 'any, but one'];
  const words = choices.map((choice, index) => first[index] ?? choice);
  return (
    <Choice name="toolChoice" title={TEXT_TITLES.toolChoice} choices={choices} words={words} hint={hint} {...props} />
  );
}

interface ChoiceProps extends FieldProps {
  name: SettingName;
  title: string;
  choices: readonly string[];
  /** What each choice is called. */
  words: readonly string[];
  hint: string;
}

function Choice({ name, title, choices, words, hint, ...props }: ChoiceProps): JSX.Element {
  const [attributes, note] = useNote(name, hint, props);
  return (
    <div class="setting">
      <label for={attributes.id}>{title}</label>
      <select
        {...attributes}
        class="field"
        value={props.settings[name]}
        onChange={(event) => changeSettings({ [name]: event.currentTarget.value })}
      >
        {choices.map((choice, index) => (
          <option key={choice} value={choice}>
            {words[index] ?? choice}
          </option>
        ))}
      </select>
      {note}
    </div>
  );
}

interface TextFieldProps extends FieldProps {
  name: TextName;
  hint: string;
  rows: number;
  /** The text is code: a field in a monospaced font, without a spelling checker. */
  isCode: boolean;
}

export function TextField({ name, hint, rows, isCode, ...props }: TextFieldProps): JSX.Element {
  const [attributes, note] = useNote(name, hint, props);
  return (
    <div class="setting setting-wide">
      <label for={attributes.id}>{TEXT_TITLES[name]}</label>
      <textarea
        {...attributes}
        class={isCode ? 'field field-code' : 'field'}
        rows={rows}
        spellcheck={!isCode}
        dir="auto"
        value={props.settings[name]}
        onInput={(event) => changeSettings({ [name]: event.currentTarget.value })}
      />
      {note}
    </div>
  );
}
