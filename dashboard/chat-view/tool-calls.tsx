import type { JSX, TargetedSubmitEvent } from 'preact';
import { useId, useState } from 'preact/hooks';
import { BranchArrows } from './branch-arrows.js';
import { sendToolResults } from './chat-store.js';
import type { Answer, Question, ToolCall, ToolResult, Turn } from './conversation.js';
import { indentedJson } from './indented-json.js';

interface ToolCallsProps {
  answer: Answer;
  /** It is the conversation's last turn, and has ended, so that results can follow. */
  takesResults: boolean;
}

/** The calls of tools in an answer, and a field for the result of each. Null: there are none. */
export function ToolCalls({ answer, takesResults }: ToolCallsProps): JSX.Element | null {
  const [results, setResults] = useState<readonly string[]>([]);
  const { toolCalls: calls } = answer;
  if (calls.length === 0) return null;
  const isWhole = calls.every((_, index) => (results[index] ?? '') !== '');
  const change = (index: number, text: string): void =>
    setResults(calls.map((_, at) => (at === index ? text : (results[at] ?? ''))));
  const submit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    if (!isWhole) return;
    sendToolResults(calls.map(({ id, name }, index) => ({ callId: id, name, content: results[index] ?? '' })));
  };
  return (
    <form class="tool-calls" onSubmit={submit}>
      {calls.map((call, index) => (
        <ToolCallCard key={index} call={call}>
          {takesResults && (
            <label class="setting">
              <span class="small">Result of {call.name}</span>
              <textarea
                class="field field-code"
                rows={2}
                dir="auto"
                value={results[index] ?? ''}
                onInput={(event) => change(index, event.currentTarget.value)}
              />
            </label>
          )}
        </ToolCallCard>
      ))}
      {takesResults && (
        <button type="submit" class="button" disabled={!isWhole}>
          {calls.length === 1 ? 'Send the result' : 'Send the results'}
        </button>
      )}
    </form>
  );
}

function ToolCallCard({ call, children }: { call: ToolCall; children: JSX.Element | false }): JSX.Element {
  const titleId = useId();
  const indented = indentedJson(call.arguments);
  return (
    <section class="card tool-call" aria-labelledby={titleId}>
      <p id={titleId} class="small">
        The model calls <code>{call.name}</code>
        {indented === null && <span class="quiet"> with arguments that are no whole JSON</span>}
      </p>
      <pre class="tool-arguments small">{indented ?? call.arguments}</pre>
      {children}
    </section>
  );
}

/** Results of tools, in the place of a question. */
export function ToolResultsTurn({
  question,
  siblings,
}: {
  question: Question;
  siblings: readonly Turn[];
}): JSX.Element {
  return (
    <li class="turn turn-results">
      {(question.toolResults ?? []).map(({ callId, name, content }: ToolResult) => (
        <section key={callId} class="card tool-call" aria-label={`Result of ${name}`}>
          <p class="small">
            <code>{name}</code> said
          </p>
          <pre class="tool-arguments small">{content}</pre>
        </section>
      ))}
      <BranchArrows turn={question} siblings={siblings} />
    </li>
  );
}
