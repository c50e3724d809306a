import type { JSX } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { ListedMachineView } from '../../shared/wire/cluster-machines.js';
import { drainMachine } from './machines-requests.js';

interface MachineDrainProps {
  machine: Pick<ListedMachineView, 'id' | 'drain'>;
  /** `words`: what was done. */
  onDone: (words: string) => Promise<void>;
}

/** Gives a machine no new work after a question, or work again. */
export function MachineDrain({ machine: { id, drain }, onDone }: MachineDrainProps): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState('');
  const isDrained = drain !== '';
  const ask = async (words: string): Promise<void> => {
    setBusy(true);
    const answer = await drainMachine(id, isDrained);
    setBusy(false);
    setProblem('problem' in answer ? answer.problem : '');
    if ('problem' in answer) return;
    setOpen(false);
    await onDone(words);
  };
  return (
    <>
      {isDrained ? (
        <button
          type="button"
          class="button small machine-drain"
          aria-label={`Give ${id} work again`}
          disabled={isBusy}
          onClick={() => void ask(`${id} gets work again.`)}
        >
          Undo drain
        </button>
      ) : (
        <button
          type="button"
          class="button small machine-drain"
          aria-expanded={isOpen}
          aria-label={`Drain ${id} …`}
          onClick={() => setOpen(!isOpen)}
        >
          Drain …
        </button>
      )}
      {isOpen && !isDrained && (
        <DrainQuestion id={id} isBusy={isBusy} onDrain={() => void ask(`${id} gets no new work.`)} />
      )}
      <p class="problem-text machine-wide" role="alert">
        {problem}
      </p>
    </>
  );
}

function DrainQuestion({ id, isBusy, onDrain }: { id: string; isBusy: boolean; onDrain: () => void }): JSX.Element {
  const button = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => button.current?.focus(), []);
  return (
    <div class="drain-question machine-wide">
      <p class="small quiet" id={`drain-${id}-note`}>
        {id} gets no new work. Others take its experts over, and answers go on. When it may go, its daemon may be
        stopped. It gets work again by Undo, or when it is started anew.
      </p>
      <button
        type="button"
        ref={button}
        class="button"
        aria-label={`Drain ${id}`}
        aria-describedby={`drain-${id}-note`}
        disabled={isBusy}
        onClick={onDrain}
      >
        Drain
      </button>
    </div>
  );
}
