import type { JSX, TargetedSubmitEvent } from 'preact';
import { useEffect, useRef, useState, useId } from 'preact/hooks';
import { askQuestion, forgetConversation, stopAnswer, useChat, changeSettings } from './chat-store.js';
import { questionOf, runningAnswer, type PageConversation } from './conversation.js';
import { AnswerTurn, QuestionTurn } from './turns.js';
import { NUMBER_TITLES, numberProblem, type NumberName, type TypedSettings } from './chat-settings.js';

export function ChatView(): JSX.Element {
  const { conversation, settings, refusal } = useChat();
  const isRunning = runningAnswer(conversation) !== null;
  const isEmpty = conversation.turns.length === 0;
  return (
    <section class="chat-view">
      <div class="chat-head">
        <h1>Chat</h1>
        <button type="button" class="button" disabled={isEmpty} onClick={forgetConversation}>
          New chat
        </button>
      </div>
      <SettingsForm settings={settings} />
      {isEmpty ? (
        <p class="quiet chat-empty">
          Ask the model something. The conversation is kept in this tab alone, and forgotten when the page is loaded
          again.
        </p>
      ) : (
        <Turns conversation={conversation} />
      )}
      <Composer isRunning={isRunning} refusal={refusal} />
    </section>
  );
}

function Turns({ conversation }: { conversation: PageConversation }): JSX.Element {
  useFollowedEnd(conversation);
  return (
    <ol class="turns" aria-label="Conversation">
      {conversation.turns.map((turn) =>
        turn.kind === 'question' ? (
          <QuestionTurn key={turn.id} question={turn} />
        ) : (
          <AnswerTurn key={turn.id} answer={turn} question={questionOf(conversation, turn.id)} />
        ),
      )}
    </ol>
  );
}

/** Distance from the page's end below which the page scrolls along with new text. */
const NEAR_END_PIXELS = 160;

function useFollowedEnd(conversation: PageConversation): void {
  const last = useRef({ turns: 0, height: 0, isRunning: false });
  useEffect(() => {
    const { scrollHeight, clientHeight, scrollTop } = document.documentElement;
    const before = last.current;
    const isRunning = runningAnswer(conversation) !== null;
    last.current = { turns: conversation.turns.length, height: scrollHeight, isRunning };
    const isNew = before.turns !== conversation.turns.length;
    // The content below an ended answer may be higher than NEAR_END_PIXELS.
    const hasEnded = before.isRunning && !isRunning;
    const isNear = (hasEnded ? before.height : scrollHeight) - clientHeight - scrollTop < NEAR_END_PIXELS;
    if (isNew || (isNear && (isRunning || hasEnded))) window.scrollTo({ top: scrollHeight });
  }, [conversation]);
}

/** `refusal`: the reason why the question was not sent. */
function Composer({ isRunning, refusal }: { isRunning: boolean; refusal: string }): JSX.Element {
  const [text, setText] = useState('');
  const send = (): void => {
    if (isRunning || text.trim() === '') return;
    if (askQuestion(text)) setText('');
  };
  const onSubmit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    send();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    // While a text is composed (Chinese, Japanese), Enter only ends the composition.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  return (
    <form class="composer" onSubmit={onSubmit}>
      <p class="composer-refusal problem-text small" role="alert">
        {refusal}
      </p>
      <textarea
        class="field"
        rows={2}
        value={text}
        placeholder="Your question"
        aria-label="Your question"
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      {isRunning ? (
        <button type="button" class="button" onClick={stopAnswer}>
          Stop
        </button>
      ) : (
        <button type="submit" class="button button-main" disabled={text.trim() === ''}>
          Ask
        </button>
      )}
    </form>
  );
}

/** The settings for the next question. */
function SettingsForm({ settings }: { settings: TypedSettings }): JSX.Element {
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
