import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { MachinesView as Machines } from '../../shared/wire/cluster-machines.js';
import { KeyForm } from '../elements/key-form.js';
import type { DashboardState } from '../feed/dashboard-state.js';
import { useDashboard } from '../feed/dashboard-store.js';
import { ListedMachines } from './listed-machines.js';
import { waitingWords } from './machines-words.js';
import { useMachines } from './use-machines.js';
import { WaitingMachines } from './waiting-machines.js';

const selectWaiting = (state: DashboardState): number => state.cluster?.waitingMachines ?? 0;

/** The machines of the cluster and those that wait. An operator lets them in and removes them. */
export function MachinesView(): JSX.Element {
  const { machines, problem, refresh } = useMachines();
  if (machines === null) {
    return <p class="quiet waiting">{problem === '' ? 'Waiting for main …' : problem}</p>;
  }
  const { authority } = machines;
  if (authority === null) return <NoAuthority />;
  return (
    <div class="machines-view">
      <h1>Machines of {authority.cluster}</h1>
      <p>
        The cluster's words: <strong class="authority-words">{authority.words}</strong>.{' '}
        <span class="quiet">
          A machine that joins shows the same four. If it shows others, it has joined another one.
        </span>
      </p>
      {machines.mayChange ? (
        <WaitingMachines machines={machines} refresh={refresh} />
      ) : (
        <WayForOperators hasOperatorKey={machines.hasOperatorKey} refresh={refresh} />
      )}
      <ListedMachines machines={machines} refresh={refresh} />
    </div>
  );
}

function NoAuthority(): JSX.Element {
  return (
    <div class="machines-view">
      <h1>Machines</h1>
      <section class="card">
        <h2>This cluster has no authority</h2>
        <p>
          Main takes every machine that reaches it, so there is nobody to let in here. On main's host{' '}
          <code>odmoe cluster init</code> makes an authority; then a machine joins by a code.
        </p>
      </section>
    </div>
  );
}

/** Tells who has no operator's key how to let a machine in. */
function WayForOperators({
  hasOperatorKey,
  refresh,
}: Pick<Machines, 'hasOperatorKey'> & { refresh: () => Promise<void> }): JSX.Element {
  const waiting = waitingWords(useDashboard(selectWaiting));
  const [isRefused, setRefused] = useState(false);
  // With an operator's key this element is gone after the refresh.
  const onOpened = (): void => void refresh().then(() => setRefused(true));
  return (
    <section class="card machines-waiting" aria-labelledby="machines-waiting">
      <h2 id="machines-waiting">{waiting === '' ? 'To let a machine in' : waiting}</h2>
      <p>
        Type <code>odmoe accept CODE</code> on main's host, with the six digits that the machine shows.
      </p>
      {hasOperatorKey ? (
        <KeyForm label="Operator's key" isFirst={false} onOpened={onOpened}>
          <p>Or open this page with an operator's key:</p>
          {isRefused && (
            <p class="problem-text" role="alert">
              Main knows this key, but it is not an operator's: it may only ask.
            </p>
          )}
        </KeyForm>
      ) : (
        <p class="quiet">
          To do it on this page, main needs a key for you: a line <code>KEY role: operator</code> in the file that{' '}
          <code>--api-keys</code> names.
        </p>
      )}
    </section>
  );
}
