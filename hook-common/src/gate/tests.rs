use std::time::Duration;

use super::*;

#[tokio::test]
async fn a_gate_never_gives_more_than_its_permits() {
    let gate = Gate::new("test", 3);
    let first = gate.enter().await;
    let rest = gate.enter_many(10).await;
    assert_eq!((first.count(), rest.count(), gate.free()), (1, 2, 0));
    assert!(gate.try_enter().is_none());
    assert!(gate.try_enter_many(5).is_none());
    drop(first);
    assert_eq!(gate.try_enter_many(5).unwrap().count(), 1);
    drop(rest);
    assert_eq!((gate.free(), gate.in_flight()), (3, 0));
}

#[tokio::test]
async fn permits_split_and_merge_without_changing_the_sum() {
    let gate = Gate::new("test", 4);
    let mut all = gate.enter_many(4).await;
    let one = all.split(1).unwrap();
    assert!(all.split(4).is_none());
    assert_eq!((one.count(), all.count(), gate.in_flight()), (1, 3, 4));
    drop(one);
    assert_eq!(gate.in_flight(), 3);
    let again = gate.try_enter().unwrap();
    all.merge(again);
    assert_eq!((all.count(), gate.in_flight()), (4, 4));
    drop(all);
    assert_eq!(gate.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_order() {
    let gate = Gate::new("test", 1);
    let held = gate.enter().await;
    let second = tokio::time::timeout(Duration::from_secs(1), gate.enter()).await;
    assert!(second.is_err());
    drop(held);
    assert_eq!(gate.enter().await.count(), 1);
}

#[test]
#[should_panic(expected = "lets nothing through")]
fn a_gate_without_permits_is_refused() {
    drop(Gate::new("test", 0));
}
