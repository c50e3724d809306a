import type { JSX } from 'preact';
import type { ProblemView } from '../../shared/wire/cluster-events.js';
import { AlertIcon } from '../elements/icons.js';

/** What is wrong, and what to do about it; says so to screen readers when it comes. */
export function ProblemList({ problems }: { problems: readonly ProblemView[] }): JSX.Element {
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

/** What stands between backquotes is drawn as code. */
function WithCode({ text }: { text: string }): JSX.Element {
  const pieces = text.split('`');
  return <>{pieces.map((piece, index) => (index % 2 === 1 ? <code key={index}>{piece}</code> : piece))}</>;
}
