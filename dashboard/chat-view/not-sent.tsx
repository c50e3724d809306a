import type { JSX } from 'preact';
import { sendAllTurns } from './chat-store.js';

/** Ends the turns that are shown, but not sent. Its place among the turns also makes those before it grey. */
export function NotSentEnd({ count }: { count: number }): JSX.Element {
  return (
    <li class="not-sent-end small">
      <span>{count === 1 ? 'The turn above is not sent' : `The ${count} turns above are not sent`} to the model.</span>
      <button type="button" class="button turn-button" onClick={sendAllTurns}>
        Send them again
      </button>
    </li>
  );
}
