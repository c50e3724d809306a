import type { JSX } from 'preact';
import { CopyButton } from '../elements/copy-button.js';

/** How another box joins. `isFirst`: there is no worker yet, and nothing works without one. */
export function JoinBox({ command, isFirst }: { command: string; isFirst: boolean }): JSX.Element {
  return (
    <section class={isFirst ? 'join join-first' : 'join'} aria-label="Add a box">
      <div>
        <h2>{isFirst ? 'No worker yet' : 'Add a box'}</h2>
        <p class="quiet small">
          {isFirst
            ? 'Main holds no experts of its own: answers begin with the first worker. Run this on a box of the same network, where odmoe is installed, or in a second terminal of this machine.'
            : 'Run this on a box of the same network, where odmoe is installed. It joins by itself, and answers go on meanwhile.'}
        </p>
      </div>
      <div class="join-command">
        <code>{command.split(' ').map((word, index) => [index > 0 && ' ', <span key={index}>{word}</span>])}</code>
        <CopyButton text={command} title="the command" />
      </div>
    </section>
  );
}
