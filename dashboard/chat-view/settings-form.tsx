import type { JSX } from 'preact';
import { useId } from 'preact/hooks';
import { NUMBER_TITLES, numberProblem, type NumberName, type TypedSettings } from './chat-settings.js';
import { changeSettings } from './chat-store.js';

/** The settings for the next question. */
export function SettingsForm({ settings }: { settings: TypedSettings }): JSX.Element {
  return (
    <details class="card chat-settings">
      <summary>Settings</summary>
      <div class="settings-grid">
        <NumberSetting name="temperature" hint="0: the likeliest token" settings={settings} />
        <NumberSetting name="topP" hint="1: all tokens" settings={settings} />
        <NumberSetting name="maxTokens" hint="empty: what has room" settings={settings} />
        <NumberSetting name="seed" hint="empty: drawn for each answer" settings={settings} />
        <label class="setting setting-wide">
          <span>System message</span>
          <textarea
            class="field"
            rows={2}
            value={settings.system}
            onInput={(event) => changeSettings({ system: event.currentTarget.value })}
          />
        </label>
      </div>
    </details>
  );
}

interface NumberSettingProps {
  name: NumberName;
  hint: string;
  settings: TypedSettings;
}

/** The field of a number. A value that is no number within the range is marked, and questions are then not sent. */
function NumberSetting({ name, hint, settings }: NumberSettingProps): JSX.Element {
  const hintId = useId();
  const problem = numberProblem(settings[name], name);
  return (
    <label class="setting">
      <span>{NUMBER_TITLES[name]}</span>
      <input
        class="field"
        inputMode="decimal"
        value={settings[name]}
        aria-invalid={problem !== ''}
        aria-describedby={hintId}
        onInput={(event) => changeSettings({ [name]: event.currentTarget.value })}
      />
      <span id={hintId} class={problem === '' ? 'small quiet' : 'small setting-wrong'}>
        {problem === '' ? hint : problem}
      </span>
    </label>
  );
}
