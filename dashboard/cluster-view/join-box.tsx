import type { JSX } from 'preact';
import type { ClusterData } from '../../shared/wire/cluster-events.js';
import { CopyButton } from '../elements/copy-button.js';

interface JoinProps {
  cluster: Pick<ClusterData, 'joinCommand' | 'isThisMachineOnly'>;
  /** True: there is no worker yet, and the cluster needs one. */
  isFirst: boolean;
}

/** The command by which another box joins. */
export function JoinBox({ cluster: { joinCommand, isThisMachineOnly }, isFirst }: JoinProps): JSX.Element {
  const words = joinCommand.split(' ');
  return (
    <section class={isFirst ? 'join join-first' : 'join'} aria-label="Add a box">
      <div>
        <h2>{isFirst ? 'No worker yet' : 'Add a box'}</h2>
        <p class="quiet small">
          {isFirst && 'Main holds no experts of its own: answers begin with the first worker. '}
          {placeWords(isThisMachineOnly, isFirst)}
        </p>
      </div>
      <div class="join-command">
        <code>{words.map((word, index) => [index > 0 && ' ', <span key={index}>{word}</span>])}</code>
        <CopyButton text={joinCommand} title="the command" />
      </div>
      {isThisMachineOnly && (
        <p class="small">Main listens on this machine only. For other boxes, start it with --host 0.0.0.0.</p>
      )}
    </section>
  );
}

function placeWords(isThisMachineOnly: boolean, isFirst: boolean): string {
  if (isThisMachineOnly) return 'Run this in a second terminal of the machine of main.';
  const where = 'Run this on a box of the same network, where odmoe is installed';
  if (isFirst) return `${where}, or in a second terminal of this machine.`;
  return `${where}. It joins by itself, and answers go on meanwhile.`;
}
