import type { JSX } from 'preact';
import { showBranch } from './chat-store.js';
import type { Turn } from './conversation.js';

interface BranchArrowsProps {
  /** The shown turn, and all turns in its place, with it. */
  turn: Turn;
  siblings: readonly Turn[];
}

/** Switches between the versions of a question or an answer; null: there is one. */
export function BranchArrows({ turn, siblings }: BranchArrowsProps): JSX.Element | null {
  if (siblings.length < 2) return null;
  const index = siblings.findIndex(({ id }) => id === turn.id);
  const show = (step: -1 | 1): void => {
    const next = siblings[index + step];
    if (next !== undefined) showBranch(next);
  };
  const onKeyDown = ({ key }: KeyboardEvent): void => {
    if (key === 'ArrowLeft') show(-1);
    else if (key === 'ArrowRight') show(1);
  };
  return (
    <div class="branches small" role="group" aria-label={`Versions of the ${turn.kind}`} onKeyDown={onKeyDown}>
      <Arrow sign="‹" words="The version before" isOff={index === 0} onClick={() => show(-1)} />
      <span role="status">{`${index + 1} of ${siblings.length}`}</span>
      <Arrow sign="›" words="The next version" isOff={index === siblings.length - 1} onClick={() => show(1)} />
    </div>
  );
}

interface ArrowProps {
  sign: string;
  words: string;
  isOff: boolean;
  onClick: () => void;
}

/** Not `disabled` where it leads nowhere: the keyboard's focus stays. */
function Arrow({ sign, words, isOff, onClick }: ArrowProps): JSX.Element {
  return (
    <button type="button" class="button turn-button" aria-label={words} aria-disabled={isOff} onClick={onClick}>
      {sign}
    </button>
  );
}
