import type { JSX } from 'preact';
import type { NodeView } from '../../shared/wire/cluster-events.js';
import { useIsSilent } from '../feed/dashboard-store.js';
import { stateWords } from './state-words.js';

/** The state of a node, in its colour. Where main is silent nobody knows it, so there the last known one has no colour. */
export function NodeState({ node }: { node: NodeView }): JSX.Element {
  const isSilent = useIsSilent();
  return (
    <span class={`state state-${isSilent ? 'unknown' : node.state} small number`}>
      <span class="state-dot" />
      {isSilent && 'was '}
      {stateWords(node)}
    </span>
  );
}
