import type { JSX, RefObject } from 'preact';
import { KEYS } from './chat-keys.js';

/** The keys of the chat, in a box over the view. */
export function KeysList({ dialog }: { dialog: RefObject<HTMLDialogElement | null> }): JSX.Element {
  return (
    <dialog ref={dialog} class="card keys-list" aria-label="Keys">
      <h2>Keys</h2>
      <dl>
        {KEYS.map(({ keys, what }) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <button type="button" class="button" onClick={() => dialog.current?.close()}>
        Close
      </button>
    </dialog>
  );
}
