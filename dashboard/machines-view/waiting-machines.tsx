import type { JSX, TargetedSubmitEvent } from 'preact';
import { useState } from 'preact/hooks';
import type { MachinesView, WaitingMachineView } from '../../shared/wire/cluster-machines.js';
import { acceptMachine } from './machines-requests.js';
import { acceptedWords, waitingFacts, wrongCodeWords } from './machines-words.js';

type Waiting = Pick<MachinesView, 'waiting' | 'wrongCodesLeft'>;

/** For operators: the machines that wait, and the field for the code on a machine's screen. */
export function WaitingMachines({
  machines: { waiting, wrongCodesLeft },
  refresh,
}: {
  machines: Waiting;
  refresh: () => Promise<void>;
}): JSX.Element {
  return (
    <section class="card machines-waiting" aria-labelledby="machines-waiting">
      <h2 id="machines-waiting">Waiting to be let in</h2>
      {waiting.length === 0 && (
        <p class="quiet">
          No machine waits. Start <code>odmoe worker</code> on the box that is to join: it shows six digits and appears
          here.
        </p>
      )}
      <ul class="machine-list">
        {waiting.map((machine) => (
          <WaitingMachine key={`${machine.id} ${machine.address}`} machine={machine} />
        ))}
      </ul>
      <CodeForm wrongCodesLeft={wrongCodesLeft} refresh={refresh} />
    </section>
  );
}

function WaitingMachine({ machine }: { machine: WaitingMachineView }): JSX.Element {
  return (
    <li class="machine" data-waiting={machine.id}>
      <p class="machine-name">
        {machine.id} <span class="quiet small">{machine.role}</span>
      </p>
      <p class="quiet small">{waitingFacts(machine).join(' · ')}</p>
    </li>
  );
}

interface CodeFormProps {
  wrongCodesLeft: number;
  refresh: () => Promise<void>;
}

function CodeForm({ wrongCodesLeft, refresh }: CodeFormProps): JSX.Element {
  const [code, setCode] = useState('');
  const [isBusy, setBusy] = useState(false);
  const [result, setResult] = useState({ done: '', problem: '' });
  const submit = async (): Promise<void> => {
    setBusy(true);
    const answer = await acceptMachine(code);
    await refresh();
    setBusy(false);
    if ('problem' in answer) return setResult({ done: '', problem: answer.problem });
    setCode('');
    setResult({ done: acceptedWords(answer.value), problem: '' });
  };
  const onSubmit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    void submit();
  };
  return (
    <form class="code-form" onSubmit={onSubmit}>
      <label for="machine-code">The six digits on the machine's screen</label>
      <div class="code-line">
        <input
          id="machine-code"
          class="field code-field"
          inputMode="numeric"
          autocomplete="off"
          maxLength={16}
          required
          value={code}
          onInput={({ currentTarget }) => setCode(currentTarget.value)}
          aria-describedby="machine-code-note"
        />
        <button type="submit" class="button button-main" disabled={isBusy}>
          Let it in
        </button>
      </div>
      <p id="machine-code-note" class={wrongCodesLeft === 1 ? 'small warn' : 'small quiet'}>
        Type what the machine itself shows. {wrongCodeWords(wrongCodesLeft)}
      </p>
      <p class="machine-done" role="status">
        {result.done}
      </p>
      <p class="problem-text" role="alert">
        {result.problem}
      </p>
    </form>
  );
}
