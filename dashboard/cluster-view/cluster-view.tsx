import type { JSX } from 'preact';
import type { ClusterData as Cluster, FigureSample, ProblemView } from '../../shared/wire/cluster-events.js';
import type { DashboardState } from '../feed/dashboard-state.js';
import { useDashboard } from '../feed/dashboard-store.js';
import { CopyButton } from '../elements/copy-button.js';
import { MEMORY_KINDS, MEMORY_TITLES, memoryBar } from './memory-parts.js';
import { NodeLists } from './node-lists.js';
import { Summary } from './summary.js';
import { AlertIcon } from '../elements/icons.js';

const selectCluster = (state: DashboardState): Cluster | null => state.cluster;
const selectLatest = (state: DashboardState): FigureSample | undefined => state.samples.at(-1);

export function ClusterView(): JSX.Element {
  const cluster = useDashboard(selectCluster);
  const latest = useDashboard(selectLatest);
  if (cluster === null) return <p class="quiet waiting">Waiting for main …</p>;
  const hasWorkers = cluster.nodes.some(({ role }) => role === 'worker');
  return (
    <>
      <h1 class="unseen">Cluster {cluster.name}</h1>
      <Summary cluster={cluster} latest={latest ?? null} />
      <ProblemList problems={cluster.problems} />
      {!hasWorkers && <JoinBox cluster={cluster} isFirst />}
      <MemoryLegend cluster={cluster} />
      <NodeLists cluster={cluster} />
      {cluster.groupReason !== '' && <p class="quiet small group-reason">Why these groups: {cluster.groupReason}.</p>}
      {hasWorkers && <JoinBox cluster={cluster} isFirst={false} />}
    </>
  );
}

/** A legend with the kinds of memory that some node has. Screen readers read the kinds at each bar instead. */
function MemoryLegend({ cluster }: { cluster: Cluster }): JSX.Element {
  const there = new Set(cluster.nodes.flatMap(({ memory }) => memoryBar(memory).parts.map(({ kind }) => kind)));
  return (
    <ul class="legend small quiet" aria-hidden="true">
      {MEMORY_KINDS.filter((kind) => there.has(kind)).map((kind) => (
        <li key={kind}>
          <span class={`swatch memory-${kind}`} />
          {MEMORY_TITLES[kind]}
        </li>
      ))}
      <li>
        <span class="swatch-mark" />
        Most so far
      </li>
    </ul>
  );
}

/** The problems, with advice. Screen readers read new ones aloud. */
function ProblemList({ problems }: { problems: readonly ProblemView[] }): JSX.Element {
  return (
    <section class="problems" aria-label="What is wrong" aria-live="polite">
      {problems.map((problem) => (
        <article class="problem" key={`${problem.node} ${problem.code} ${problem.message}`}>
          <AlertIcon />
          <div>
            <p class="problem-message">
              {/* Many messages speak of "it". */}
              {problem.node !== '' && !problem.message.includes(problem.node) && `${problem.node}: `}
              {problem.message}
            </p>
            {problem.advice !== '' && (
              <p class="problem-advice">
                <span class="quiet">What to do: </span>
                <WithCode text={problem.advice} />
              </p>
            )}
          </div>
          <span class="problem-code small">{problem.code}</span>
        </article>
      ))}
    </section>
  );
}

/** Draws text between backquotes as code. */
function WithCode({ text }: { text: string }): JSX.Element {
  const pieces = text.split('`');
  return <>{pieces.map((piece, index) => (index % 2 === 1 ? <code key={index}>{piece}</code> : piece))}</>;
}

interface JoinProps {
  cluster: Pick<Cluster, 'joinCommand' | 'isThisMachineOnly' | 'hasAuthority'>;
  /** True: there is no worker yet, and the cluster needs one. */
  isFirst: boolean;
}

/** The command by which another box joins. */
function JoinBox({ cluster, isFirst }: JoinProps): JSX.Element {
  const { joinCommand, isThisMachineOnly } = cluster;
  const words = joinCommand.split(' ');
  return (
    <section class={isFirst ? 'join join-first' : 'join'} aria-label="Add a box">
      <div>
        <h2>{isFirst ? 'No worker yet' : 'Add a box'}</h2>
        <p class="quiet small">
          {isFirst && 'Main holds no experts of its own: answers begin with the first worker. '}
          {placeWords(cluster, isFirst)}
        </p>
      </div>
      <div class="join-command">
        <code>{words.map((word, index) => [index > 0 && ' ', <span key={index}>{word}</span>])}</code>
        <CopyButton text={joinCommand} title="the command" />
      </div>
      {isThisMachineOnly && (
        <p class="small">Main listens on this machine only. For other boxes, start it with --lan.</p>
      )}
    </section>
  );
}

function placeWords({ isThisMachineOnly, hasAuthority }: JoinProps['cluster'], isFirst: boolean): string {
  if (isThisMachineOnly) return 'Run this in a second terminal of the machine of main.';
  const where = 'Run this on a box of the same network, where odmoe is installed';
  const how = hasAuthority ? 'It shows six digits: type them under Machines' : 'It joins by itself';
  if (isFirst) return `${where}, or in a second terminal of this machine.${hasAuthority ? ` ${how}.` : ''}`;
  return `${where}. ${how}, and answers go on meanwhile.`;
}
