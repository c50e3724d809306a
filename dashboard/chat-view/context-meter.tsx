import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { DashboardState } from '../feed/dashboard-state.js';
import { useDashboard } from '../feed/dashboard-store.js';
import { formatCount } from '../format/quantities.js';
import { dropOldestTurns } from './chat-store.js';
import { contextUse } from './context-use.js';
import type { PageConversation } from './conversation.js';
import { droppableCounts, droppedTurns, tooLongQuestion, type ContextOfModel } from './dropped-turns.js';
import { useTypedTokens } from './use-typed-tokens.js';

/** Where a context that is so full gets another colour. */
const NEARLY_FULL = 0.85;

const selectModel = (state: DashboardState): ContextOfModel | undefined => state.cluster?.model;

interface ContextMeterProps {
  conversation: PageConversation;
  typed: string;
}

/** How much of the model's context the next prompt takes, and a way out where it is too much. Null: the context is not known. */
export function ContextMeter({ conversation, typed }: ContextMeterProps): JSX.Element | null {
  const model = useDashboard(selectModel);
  const typedTokens = useTypedTokens(typed);
  if (model === undefined) return null;
  const { contextPositions } = model;
  const { tokens, isAbout } = contextUse(conversation.turns, droppedTurns(conversation), typedTokens);
  const words = `${isAbout ? 'about ' : ''}${formatCount(tokens)} of ${formatCount(contextPositions)} tokens`;
  const isRefused = typed.trim() === '' && tooLongQuestion(conversation) !== null;
  return (
    <>
      <div class="context-meter small quiet" title="What the next prompt takes of the model's context">
        <meter
          aria-label="Context"
          min={0}
          max={contextPositions}
          high={contextPositions * NEARLY_FULL}
          optimum={0}
          value={Math.min(tokens, contextPositions)}
        />
        <span>{words}</span>
      </div>
      <div class="context-status" role="status">
        {(isRefused || tokens >= contextPositions) && (
          <TooLong conversation={conversation} typed={typed} model={model} isRefused={isRefused} />
        )}
      </div>
    </>
  );
}

interface TooLongProps extends ContextMeterProps {
  model: ContextOfModel;
  /** Main has refused the last question already. */
  isRefused: boolean;
}

/** Says that the prompt is too long, and drops the oldest turns on request. */
function TooLong({ conversation, typed, model, isRefused }: TooLongProps): JSX.Element {
  const [problem, setProblem] = useState('');
  const [isBusy, setBusy] = useState(false);
  const turns = isRefused ? conversation.turns.slice(0, -1) : conversation.turns;
  const canDrop = droppableCounts(turns, !isRefused).some((count) => count > droppedTurns(conversation));
  const drop = async (): Promise<void> => {
    setBusy(true);
    setProblem(await dropOldestTurns(typed, model));
    setBusy(false);
  };
  return (
    <div class="context-full">
      <p class="small">
        {isRefused
          ? 'The prompt was too long for the context.'
          : "With this the prompt is longer than the model's context."}{' '}
        {canDrop ? 'The oldest turns can be left out of it; they stay here.' : 'Write less, or begin a new chat.'}
      </p>
      {canDrop && (
        <button type="button" class="button" disabled={isBusy} onClick={() => void drop()}>
          {isRefused ? 'Drop the oldest turns and ask again' : 'Drop the oldest turns'}
        </button>
      )}
      {problem !== '' && <p class="small problem-text">{problem}</p>}
    </div>
  );
}
