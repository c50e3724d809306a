import type { JSX, TargetedSubmitEvent } from 'preact';
import { useState } from 'preact/hooks';
import { hasLoggedIn } from '../feed/session.js';
import { areTokensWhole, usageWords } from './answer-words.js';
import { askQuestionAgain, requestOf } from './chat-store.js';
import type { Answer, Question } from './conversation.js';
import { curlCommand } from './curl-command.js';
import { TokenText } from './token-text.js';

export function QuestionTurn({ question }: { question: Question }): JSX.Element {
  const [text, setText] = useState<string | null>(null);
  const submit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    if (text === null || text.trim() === '') return;
    if (askQuestionAgain(question.id, text, null)) setText(null);
  };
  if (text === null) {
    return (
      <li class="turn turn-question">
        <p class="turn-text">{question.text}</p>
        <button type="button" class="button turn-button" onClick={() => setText(question.text)}>
          Edit
        </button>
      </li>
    );
  }
  return (
    <li class="turn turn-question turn-edited">
      <form onSubmit={submit}>
        <textarea
          class="field"
          rows={3}
          value={text}
          aria-label="The question"
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <div class="turn-buttons">
          <button type="submit" class="button button-main">
            Ask from here
          </button>
          <button type="button" class="button" onClick={() => setText(null)}>
            Leave it
          </button>
        </div>
      </form>
    </li>
  );
}

export function AnswerTurn({ answer, question }: { answer: Answer; question: Question | null }): JSX.Element {
  const isRunning = answer.state === 'waiting' || answer.state === 'streaming';
  return (
    <li class="turn turn-answer" data-state={answer.state} aria-busy={isRunning}>
      {answer.reasoning !== '' && (
        <details class="reasoning">
          <summary class="small quiet">Reasoning</summary>
          <p class="turn-text small quiet">{answer.reasoning}</p>
        </details>
      )}
      {areTokensWhole(answer) ? (
        <TokenText tokens={answer.tokens} />
      ) : (
        <p class="turn-text">{answer.text === '' && isRunning ? '…' : answer.text}</p>
      )}
      {answer.progress !== '' && <p class="small quiet">{answer.progress}</p>}
      {answer.error !== '' && (
        <p class="answer-error" role="alert">
          {answer.error}
        </p>
      )}
      {answer.state === 'stopped' && <p class="small quiet">Stopped.</p>}
      {!isRunning && (
        <div class="answer-foot">
          <p class="small quiet">{usageWords(answer).join(' · ')}</p>
          <AnswerButtons answer={answer} question={question} />
        </div>
      )}
    </li>
  );
}

function AnswerButtons({ answer, question }: { answer: Answer; question: Question | null }): JSX.Element {
  const [copied, setCopied] = useState('');
  const copy = async (): Promise<void> => {
    const { url, body } = requestOf(answer);
    const command = curlCommand(url, body, hasLoggedIn());
    try {
      await navigator.clipboard.writeText(command);
      setCopied('Copied');
    } catch {
      // Browsers forbid the clipboard to pages from another machine without TLS; then the user can copy the text by hand.
      setCopied(command);
    }
  };
  return (
    <>
      <div class="turn-buttons">
        {question !== null && (
          <button
            type="button"
            class="button turn-button"
            title="With the same seed and settings: where the fingerprint is the same, too, so is the answer"
            onClick={() => askQuestionAgain(question.id, question.text, answer.settings)}
          >
            Ask again
          </button>
        )}
        <button type="button" class="button turn-button" onClick={() => void copy()}>
          {copied === 'Copied' ? 'Copied' : 'Copy as curl'}
        </button>
      </div>
      {copied !== '' && copied !== 'Copied' && <pre class="curl-command small">{copied}</pre>}
    </>
  );
}
