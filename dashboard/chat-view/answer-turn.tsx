import type { JSX } from 'preact';
import { useIsSilent } from '../feed/dashboard-store.js';
import { AnswerBody } from './answer-body.js';
import { AnswerButtons } from './answer-buttons.js';
import { AnswerDetails } from './answer-details.js';
import { BranchArrows } from './branch-arrows.js';
import { isRunning, type Answer, type Question, type Turn } from './conversation.js';
import { shownAnswer } from './cut-answers.js';
import { ToolCalls } from './tool-calls.js';

interface AnswerTurnProps {
  answer: Answer;
  question: Question | null;
  siblings: readonly Turn[];
  isLast: boolean;
  /** Another tab has asked for it. */
  isElsewhere: boolean;
}

export function AnswerTurn({ answer, question, siblings, isLast, isElsewhere }: AnswerTurnProps): JSX.Element {
  const runs = isRunning(answer);
  const shown = shownAnswer(answer);
  return (
    <li class="turn turn-answer" data-state={answer.state} aria-busy={runs}>
      <AnswerBody key={answer.id} answer={shown} />
      <ToolCalls key={`tools of ${answer.id}`} answer={shown} takesResults={isLast && answer.state === 'done'} />
      {shown.progress !== '' && <p class="small quiet">{shown.progress}</p>}
      {runs && <SilenceNote />}
      {runs && isElsewhere && <p class="small quiet">Under way in another tab.</p>}
      {answer.error !== '' && (
        <p class="answer-error" role="alert">
          {answer.error}
        </p>
      )}
      {answer.state === 'stopped' && <p class="small quiet">Stopped.</p>}
      {answer.state === 'cut' && <p class="small quiet">Cut off: its page was closed or loaded again.</p>}
      {runs && <BranchArrows turn={answer} siblings={siblings} />}
      {!runs && (
        <div class="answer-foot">
          <div class="turn-buttons">
            <BranchArrows turn={answer} siblings={siblings} />
            <AnswerButtons key={answer.id} answer={answer} question={question} />
          </div>
          <AnswerDetails answer={answer} />
        </div>
      )}
    </li>
  );
}

/** An answer under way waits as long as main is silent, which the page's banner says far above it. */
function SilenceNote(): JSX.Element | null {
  if (!useIsSilent()) return null;
  return <p class="small problem-text">Main is silent. The answer goes on when main does; Esc stops it.</p>;
}
