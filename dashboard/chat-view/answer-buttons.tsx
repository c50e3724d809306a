import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { hasLoggedIn } from '../feed/session.js';
import { askQuestionAgain, goOnWith, requestOf } from './chat-store.js';
import type { Answer, Question } from './conversation.js';
import { curlCommand } from './curl-command.js';
import { canGoOn } from './cut-answers.js';

export function AnswerButtons({ answer, question }: { answer: Answer; question: Question | null }): JSX.Element {
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
        {canGoOn(answer) && (
          <button
            type="button"
            class="button turn-button"
            title="Asks the same again, with the same seed: where the fingerprint is the same, too, the answer goes on from here"
            onClick={() => goOnWith(answer)}
          >
            Go on
          </button>
        )}
        {question !== null && (
          <button
            type="button"
            class="button turn-button"
            title="With the same seed and settings: where the fingerprint is the same, too, so is the answer"
            onClick={() => askQuestionAgain(question.id, question.text, answer.isImported ? null : answer.settings)}
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
