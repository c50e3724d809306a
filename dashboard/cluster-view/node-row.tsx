import type { JSX } from 'preact';
import type { NodeView } from '../../shared/wire/cluster-events.js';
import { formatBytes } from '../../shared/base/text/units.js';
import { ChevronIcon } from '../elements/icons.js';
import { formatMilliseconds } from '../format/quantities.js';
import { NodeDetails } from './node-card.js';
import { NodeState } from './node-state.js';

interface RowProps {
  node: NodeView;
  /** The odmoe version of main. */
  release: string;
  isOpen: boolean;
  onToggle: (id: string) => void;
}

/** One line of a node in a large cluster; a press on it shows what a card would. */
export function NodeRow({ node, release, isOpen, onToggle }: RowProps): JSX.Element {
  const details = `details-${node.id}`;
  return (
    <li class={`node-row node-${node.state}`} data-node={node.id} data-state={node.state}>
      <h3>
        <button
          type="button"
          class="row-button"
          aria-expanded={isOpen}
          aria-controls={isOpen ? details : undefined}
          onClick={() => onToggle(node.id)}
        >
          <ChevronIcon />
          <span class="row-name">{node.id}</span>
          <RowFigures node={node} />
          <NodeState node={node} />
        </button>
      </h3>
      {isOpen && (
        <div id={details} class="row-details">
          <NodeDetails node={node} release={release} />
        </div>
      )}
    </li>
  );
}

function RowFigures({ node }: { node: NodeView }): JSX.Element {
  const { state, reason, memory, waits } = node;
  if (state === 'lost') return <span class="row-figures small">{reason}</span>;
  return (
    <span class="row-figures quiet small">
      {waits !== null && <span class="row-waits number">main waits {formatMilliseconds(waits.waitMs)} · </span>}
      <span class="number">
        {formatBytes(memory.usedBytes)}
        {memory.budgetBytes > 0 && ` of ${formatBytes(memory.budgetBytes)}`}
      </span>
    </span>
  );
}
