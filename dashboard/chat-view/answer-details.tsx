import type { JSX } from 'preact';
import { hasLoggedIn } from '../feed/session.js';
import { usageWords } from './answer-words.js';
import { requestOf } from './chat-store.js';
import type { Answer } from './conversation.js';
import { CopyText } from './copy-text.js';
import { curlCommand } from './curl-command.js';

/** The details of an answer, folded: its numbers, its seed and fingerprint, and the command that asks for it. */
export function AnswerDetails({ answer }: { answer: Answer }): JSX.Element {
  const command = (): string => {
    const { url, body } = requestOf(answer);
    return curlCommand(url, body, hasLoggedIn());
  };
  return (
    <details class="answer-details">
      <summary class="small quiet">Details</summary>
      <div class="answer-details-inner">
        <p class="small quiet">{usageWords(answer).join(' · ')}</p>
        <CopyText label="Copy as curl" text={command} />
      </div>
    </details>
  );
}
