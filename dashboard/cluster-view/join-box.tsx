import type { JSX } from 'preact';
import { CopyButton } from '../elements/copy-button.js';

export function JoinBox({ command, hasWorkers }: { command: string; hasWorkers: boolean }): JSX.Element {
  return (
    <section class={hasWorkers ? 'join' : 'join join-first'} aria-label="Add a box">
      <div>
        <h2>{hasWorkers ? 'Add a box' : 'No worker yet'}</h2>
        <p class="quiet small">
          {hasWorkers
            ? 'Run this on a box of the same network, where odmoe is installed. It joins by itself, and answers go on meanwhile.'
            : 'Main holds no experts of its own: answers begin with the first worker. Run this on a box of the same network, where odmoe is installed; a second terminal on this machine will do to try it.'}
        </p>
      </div>
      <div class="join-command">
        <code>{command}</code>
        <CopyButton text={command} title="the command" />
      </div>
    </section>
  );
}
