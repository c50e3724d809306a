import type { JSX } from 'preact';
import { AnswerBody } from './answer-body.js';
import { AnswerButtons } from './answer-buttons.js';
import { usageWords } from './answer-words.js';
import { isRunning, type Answer, type Question } from './conversation.js';
import { ToolCalls } from './tool-calls.js';

interface AnswerTurnProps {
  answer: Answer;
  question: Question | null;
  isLast: boolean;
}

export function AnswerTurn({ answer, question, isLast }: AnswerTurnProps): JSX.Element {
  const runs = isRunning(answer);
  return (
    <li class="turn turn-answer" data-state={answer.state} aria-busy={runs}>
      <AnswerBody answer={answer} />
      <ToolCalls answer={answer} takesResults={isLast && answer.state === 'done'} />
      {answer.progress !== '' && <p class="small quiet">{answer.progress}</p>}
      {answer.error !== '' && (
        <p class="answer-error" role="alert">
          {answer.error}
        </p>
      )}
      {answer.state === 'stopped' && <p class="small quiet">Stopped.</p>}
      {!runs && (
        <div class="answer-foot">
          <p class="small quiet">{usageWords(answer).join(' · ')}</p>
          <AnswerButtons answer={answer} question={question} />
        </div>
      )}
    </li>
  );
}
