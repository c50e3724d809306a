import type { JSX, TargetedSubmitEvent } from 'preact';
import { useState } from 'preact/hooks';
import { askQuestion, stopAnswer } from './chat-store.js';

/** `refusal`: the reason why the question was not sent. */
export function Composer({ isRunning, refusal }: { isRunning: boolean; refusal: string }): JSX.Element {
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
