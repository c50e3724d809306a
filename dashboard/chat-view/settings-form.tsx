import type { JSX } from 'preact';
import { useId, useState } from 'preact/hooks';
import { settingNumber, type ChatSettings, type SETTING_RANGES } from './chat-settings.js';
import { changeSettings } from './chat-store.js';

/** What the next question is asked with. */
export function SettingsForm({ settings }: { settings: ChatSettings }): JSX.Element {
  return (
    <details class="card chat-settings">
      <summary>Settings</summary>
      <div class="settings-grid">
        <NumberSetting name="temperature" words="Temperature" hint="0: the likeliest token" settings={settings} />
        <NumberSetting name="topP" words="Top p" hint="1: all tokens" settings={settings} />
        <NumberSetting name="maxTokens" words="Most tokens" hint="empty: what has room" settings={settings} />
        <NumberSetting name="seed" words="Seed" hint="empty: drawn for each answer" settings={settings} />
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
  name: keyof typeof SETTING_RANGES;
  words: string;
  hint: string;
  settings: ChatSettings;
}

/** What is no number within the range changes nothing, and is marked. */
function NumberSetting({ name, words, hint, settings }: NumberSettingProps): JSX.Element {
  const hintId = useId();
  const [typed, setTyped] = useState(String(settings[name] ?? ''));
  const value = settingNumber(typed, name);
  const mayBeEmpty = name === 'maxTokens' || name === 'seed';
  const isWrong = value === undefined || (value === null && !mayBeEmpty);
  const onInput = (text: string): void => {
    setTyped(text);
    const next = settingNumber(text, name);
    if (next !== undefined && (next !== null || mayBeEmpty)) changeSettings({ [name]: next });
  };
  return (
    <label class="setting">
      <span>{words}</span>
      <input
        class="field"
        inputMode="decimal"
        value={typed}
        aria-invalid={isWrong}
        aria-describedby={hintId}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      <span id={hintId} class={isWrong ? 'small setting-wrong' : 'small quiet'}>
        {isWrong ? 'no such number' : hint}
      </span>
    </label>
  );
}
