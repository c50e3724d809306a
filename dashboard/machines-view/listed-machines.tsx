import type { JSX, TargetedSubmitEvent } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { ListedMachineView, MachinesView } from '../../shared/wire/cluster-machines.js';
import { formatDay } from '../format/quantities.js';
import { MachineDrain } from './machine-drain.js';
import { removeMachine } from './machines-requests.js';
import { knownFacts } from './machines-words.js';

interface ListedMachinesProps {
  machines: Pick<MachinesView, 'nodes' | 'mayChange'>;
  refresh: () => Promise<void>;
}

/** The machines in the cluster. Operators can drain and remove them. */
export function ListedMachines({ machines: { nodes, mayChange }, refresh }: ListedMachinesProps): JSX.Element {
  const heading = useRef<HTMLHeadingElement>(null);
  const [done, setDone] = useState('');
  const onDone = async (words: string): Promise<void> => {
    setDone(words);
    await refresh();
    // The button that had the focus is gone.
    heading.current?.focus();
  };
  return (
    <section class="card machines-listed" aria-labelledby="machines-listed">
      <h2 id="machines-listed" ref={heading} tabIndex={-1}>
        In the cluster
      </h2>
      <p role="status" class="machine-done">
        {done}
      </p>
      <ul class="machine-list">
        {nodes.map((machine) => (
          <ListedMachine
            key={`${machine.id} ${machine.sinceMs}`}
            machine={machine}
            mayChange={mayChange && machine.role !== 'main'}
            onDone={onDone}
          />
        ))}
      </ul>
    </section>
  );
}

interface ListedMachineProps {
  machine: ListedMachineView;
  mayChange: boolean;
  /** `words`: what was done. */
  onDone: (words: string) => Promise<void>;
}

function ListedMachine({ machine, mayChange, onDone }: ListedMachineProps): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const { id, role, device, address, sinceMs, isConnected, drain } = machine;
  return (
    <li class="machine" data-machine={id}>
      <p class="machine-name">
        {id} <span class="quiet small">{role}</span>
        {!isConnected && role !== 'operator' && <span class="warn small"> not connected</span>}
      </p>
      <p class="quiet small">
        {knownFacts([device, address]).map((fact) => `${fact} · `)}
        since <time dateTime={new Date(sinceMs).toISOString()}>{formatDay(sinceMs)}</time>
      </p>
      {drain !== '' && (
        <p class="warn small">
          {id} {drain}.
        </p>
      )}
      {mayChange && isConnected && <MachineDrain machine={machine} onDone={onDone} />}
      {mayChange && (
        <button
          type="button"
          class="button small machine-remove"
          aria-expanded={isOpen}
          aria-label={`Remove ${id} …`}
          onClick={() => setOpen(!isOpen)}
        >
          Remove …
        </button>
      )}
      {isOpen && <RemovalForm id={id} onRemoved={() => onDone(`${id} was removed.`)} />}
    </li>
  );
}

/** Removes the machine when its id was typed, so that no slip of the hand does. */
function RemovalForm({ id, onRemoved }: { id: string; onRemoved: () => Promise<void> }): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  const [typed, setTyped] = useState('');
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState('');
  useLayoutEffect(() => field.current?.focus(), []);
  const submit = async (): Promise<void> => {
    setBusy(true);
    const answer = await removeMachine(id);
    setBusy(false);
    if ('problem' in answer) setProblem(answer.problem);
    else await onRemoved();
  };
  const onSubmit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    if (typed.trim() === id) void submit();
  };
  const fieldId = `remove-${id}`;
  return (
    <form class="removal-form" onSubmit={onSubmit}>
      <label for={fieldId}>
        To remove it, type its name: <strong>{id}</strong>
      </label>
      <div class="code-line">
        <input
          id={fieldId}
          ref={field}
          class="field"
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          value={typed}
          onInput={({ currentTarget }) => setTyped(currentTarget.value)}
          aria-describedby={`${fieldId}-note`}
        />
        <button type="submit" class="button button-bad" disabled={isBusy || typed.trim() !== id}>
          Remove
        </button>
      </div>
      <p id={`${fieldId}-note`} class="small quiet">
        Its connections end at once. To come back it must join again.
      </p>
      <p class="problem-text" role="alert">
        {problem}
      </p>
    </form>
  );
}
